// Writes the test models: a folder of exports with their weights taken out, so that the repository holds
// graphs and not random numbers. The tests fill the weights in (test/graph/zoo.ts).
//
//     node test/models/strip-weights.mjs zoo FOLDER
//     node test/models/strip-weights.mjs families FOLDER
//
// FOLDER holds what tools/training/export_zoo.py or export_families.py has written.

import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { readModel, writeModel } from '@mxattn/ort-op';

const [kind, folder] = process.argv.slice(2);
const target = new URL(`${kind}/`, import.meta.url);

if (kind === 'zoo') {
  const inputs = {};
  for (const file of readdirSync(folder).filter((each) => each.endsWith('.onnx'))) {
    const name = file.replace(/\.onnx$/, '');
    stripModel(join(folder, file), `${name}.onnx.gz`);
    inputs[name] = inputsOf(join(folder, `${name}.io.safetensors`));
  }
  writeFileSync(new URL('inputs.json', target), `${JSON.stringify(inputs)}\n`);
} else {
  // Of a decoder, transformers.js reads the merged form alone.
  const unused = /decoder_(with_past_)?model\.onnx$|special_tokens_map|vocab|merges|added_tokens/;
  for (const file of readdirSync(folder, { recursive: true }).filter((each) => /\.(json|onnx)$/.test(each))) {
    if (unused.test(file)) continue;
    mkdirSync(new URL(dirname(file), target), { recursive: true });
    if (file.endsWith('.onnx')) stripModel(join(folder, file), `${file}.gz`);
    else
      writeFileSync(new URL(`${file}.gz`, target), gzipSync(readFileSync(join(folder, file)), { level: 9 }));
  }
}

/** Writes a model without its random weights, docs and notes of the exporter. */
function stripModel(path, name) {
  const model = readModel(path);
  for (const tensor of model.graph.initializer) {
    const float32 = tensor.dataType === 1;
    if (float32 && tensor.rawData.byteLength > 256) tensor.rawData = new Uint8Array();
  }
  for (const node of model.graph.node) {
    node.docString = '';
    node.metadataProps = [];
  }
  model.graph.valueInfo.forEach((info) => {
    info.metadataProps = [];
  });
  writeFileSync(new URL(name, target), gzipSync(writeModel(model), { level: 9 }));
}

/** The integer inputs with their values; of the others only the type and the shape. */
function inputsOf(path) {
  const bytes = readFileSync(path);
  const length = Number(bytes.readBigUInt64LE(0));
  const entries = Object.entries(JSON.parse(bytes.subarray(8, 8 + length).toString()));
  return Object.fromEntries(
    entries
      .filter(([name]) => name.startsWith('input.'))
      .map(
        ([
          name,
          {
            dtype,
            shape,
            data_offsets: [start, end],
          },
        ]) => {
          const data = bytes.subarray(8 + length + start, 8 + length + end);
          const integers = { I64: (at) => Number(data.readBigInt64LE(8 * at)), BOOL: (at) => data[at] }[
            dtype
          ];
          const count = shape.reduce((a, b) => a * b, 1);
          const values = integers && Array.from({ length: count }, (_, at) => integers(at));
          return [name.slice('input.'.length), { type: dtype, shape, ...(values ? { values } : {}) }];
        },
      ),
  );
}
