import { attentionSpec, calibrate, MxattnError, type ScoreSample, scoreSamples } from '@mxattn/core';
import {
  convertModel,
  createSession,
  fusedValues,
  modelInputs,
  readModel,
  withOutputs,
  writeModel,
} from '@mxattn/ort-op';
import { Command } from 'commander';
import type { Tensor } from 'onnxruntime-common';
import { writeFile } from './files.js';
import { modelFeeds, normal } from './inputs.js';
import { numbersOf } from './numbers.js';
import { numberOption, positiveOption } from './options.js';
import { printJson, printTable } from './output.js';
import { running } from './running.js';

interface CalibrateOptions {
  readonly inputs?: string;
  readonly out?: string;
  readonly table?: boolean;
  readonly rows: number;
  readonly temperature: number;
  readonly length: number;
  readonly threads: number;
  readonly json?: boolean;
}

/** `mxattn calibrate [MODEL]` */
export function calibrateCommand(): Command {
  return new Command('calibrate')
    .description(
      'Finds the thresholds of EFQ-Softmax for the scores of a model, or for normal queries and keys.',
    )
    .argument('[model]', 'an ONNX file; default: synthetic scores')
    .option('--inputs <file>', "a safetensors file with the model's inputs; default: made up")
    .option('--table', 'also look for the table of EFQ-LUT')
    .option('--rows <n>', 'query rows used per head', positiveOption('rows'), 32)
    .option('--temperature <t>', 'factor on synthetic queries', numberOption('temperature'), 1)
    .option(
      '--length <n>',
      'keys of synthetic scores, or free axes of made-up inputs',
      positiveOption('length'),
      512,
    )
    .option('--threads <n>', 'threads within an operator', positiveOption('threads'), 2)
    .option('--out <file>', 'write the calibration as JSON')
    .option('--json', 'print JSON')
    .addHelpText(
      'after',
      '\nExamples:\n  mxattn calibrate --table --out efq.json\n  mxattn calibrate model.onnx --inputs batch.safetensors',
    )
    .action(async (model: string | undefined, options: CalibrateOptions) => {
      const samples =
        model === undefined ? synthetic(options) : await running(model, () => captured(model, options));
      const calibration = calibrate(samples, { table: options.table ?? false });
      if (options.out !== undefined) {
        writeFile(options.out, `${JSON.stringify(calibration, null, 2)}\n`);
      }
      if (options.json) printJson(calibration);
      else {
        const { table, ...rest } = calibration;
        printTable('EFQ-Softmax', [{ ...rest, ...(table ? { table: table.join(' ') } : {}) }]);
      }
    });
}

function synthetic({ rows, length, temperature }: CalibrateOptions): ScoreSample[] {
  const spec = attentionSpec({ heads: 1, queryLength: rows, keyLength: length, headSize: 64 });
  const query = normal(rows * 64, 1).map((x) => x * temperature);
  return scoreSamples({ query, key: normal(length * 64, 2), value: normal(length * 64, 3) }, spec);
}

async function captured(path: string, options: CalibrateOptions): Promise<ScoreSample[]> {
  const { model } = convertModel(readModel(path));
  const attentions = fusedValues(model);
  if (attentions.length === 0)
    throw new MxattnError(`${path} has no attention to replace; see mxattn inspect`);
  const names = attentions.flatMap(({ query, key, value, bias }) => [
    query,
    key,
    value,
    ...(bias ? [bias] : []),
  ]);
  const session = await createSession(writeModel(withOutputs(model, names)), {
    backend: 'native',
    kvCache: 'tensors',
    threads: options.threads,
  });
  const feeds = modelFeeds(modelInputs(model), { file: options.inputs, length: options.length });
  const values = await session.run(feeds);
  return attentions.flatMap(({ query, key, value, bias, scale, softcap, window }) => {
    const of = (name: string) => values[name] ?? feeds[name];
    const q = of(query) as Tensor;
    const k = of(key) as Tensor;
    const [batch, heads, queryLength, headSize] = q.dims as [number, number, number, number];
    const [, kvHeads, keyLength] = k.dims as [number, number, number];
    const v = of(value) as Tensor;
    const b = bias === undefined ? undefined : (of(bias) as Tensor);
    const samples = scoreSamples(
      {
        query: numbersOf(q)!,
        key: numbersOf(k)!,
        value: numbersOf(v)!,
        ...(b ? { bias: { data: numbersOf(b)!, dims: b.dims } } : {}),
      },
      attentionSpec({
        batch,
        heads,
        kvHeads,
        queryLength,
        keyLength,
        headSize,
        valueHeadSize: v.dims[3]!,
        scale,
        softcap,
        window: {
          left: window.left < 0 ? keyLength : window.left,
          right: window.right < 0 ? keyLength : window.right,
        },
      }),
    );
    return samples.map((sample) => someRows(sample, options.rows));
  });
}

/** Rows spread evenly over a sample. */
function someRows(sample: ScoreSample, count: number): ScoreSample {
  if (sample.rows <= count) return sample;
  const scores = new Float64Array(count * sample.keys);
  for (let i = 0; i < count; i++) {
    const row = Math.floor(((i + 0.5) * sample.rows) / count);
    scores.set(sample.scores.subarray(row * sample.keys, (row + 1) * sample.keys), i * sample.keys);
  }
  return { ...sample, scores, rows: count };
}
