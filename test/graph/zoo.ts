import { readdirSync, readFileSync } from 'node:fs';
import { gunzipSync } from 'node:zlib';
import type { ModelProto } from '@mxattn/ort-op';
import { Tensor } from 'onnxruntime-node';
import { noise } from './noise.js';
import { withWeights } from './weights.js';

const folder = new URL('../models/zoo/', import.meta.url);

interface StoredInput {
  readonly type: 'F32' | 'I64' | 'BOOL';
  readonly shape: number[];
  readonly values?: number[];
}

const inputs = JSON.parse(readFileSync(new URL('inputs.json', folder), 'utf8')) as Record<
  string,
  Record<string, StoredInput>
>;

/** Names of the small exports of real architectures: `architecture.attention.exporter`. */
export const zooNames: readonly string[] = readdirSync(folder)
  .filter((file) => file.endsWith('.onnx.gz'))
  .map((file) => file.replace('.onnx.gz', ''));

/** A model of the zoo. */
export function zooModel(name: string): ModelProto {
  return withWeights(gunzipSync(readFileSync(new URL(`${name}.onnx.gz`, folder))));
}

/** What to feed it: token ids and masks as they were exported, pictures and sounds as noise. */
export function zooFeeds(name: string): Record<string, Tensor> {
  return Object.fromEntries(
    Object.entries(inputs[name] ?? {}).map(([input, { type, shape, values }], index) => {
      if (type === 'F32')
        return [
          input,
          new Tensor(
            'float32',
            noise(
              shape.reduce((a, b) => a * b, 1),
              index + 9,
            ),
            shape,
          ),
        ];
      if (type === 'BOOL') return [input, new Tensor('bool', values ?? [], shape)];
      return [input, new Tensor('int64', BigInt64Array.from(values ?? [], BigInt), shape)];
    }),
  );
}
