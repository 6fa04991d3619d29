import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { convertModel, createSession, type ModelProto, readModel, writeModel } from '@mxattn/ort-op';
import { afterAll, describe, expect, it } from 'vitest';
import { relativeError, runStock } from './stock.js';
import { zooFeeds, zooModel } from './zoo.js';

const name = 'llama.eager.ts17';

/** Moves the weights of a model into a file of their own. */
function externalize(model: ModelProto, location: string): Uint8Array {
  const parts: Uint8Array[] = [];
  let offset = 0;
  for (const tensor of model.graph?.initializer ?? []) {
    const { rawData } = tensor;
    if (rawData.byteLength < 1024) continue;
    parts.push(rawData);
    describeExternal(tensor, location, offset, rawData.byteLength);
    offset += rawData.byteLength;
  }
  return Buffer.concat(parts);
}

function describeExternal(
  tensor: NonNullable<ModelProto['graph']>['initializer'][number],
  location: string,
  offset: number,
  length: number,
): void {
  tensor.rawData = new Uint8Array();
  tensor.dataLocation = 1;
  // Entries like those of a model read from a file; only the fields matter.
  const entry = (key: string, value: string) => ({
    $typeName: 'onnx.StringStringEntryProto' as const,
    key,
    value,
  });
  tensor.externalData = [
    entry('location', location),
    entry('offset', String(offset)),
    entry('length', String(length)),
  ];
}

function externalEntries(model: ModelProto) {
  return (model.graph?.initializer ?? [])
    .filter((tensor) => tensor.externalData.length > 0)
    .map((tensor) => [tensor.name, ...tensor.externalData.map(({ key, value }) => `${key}=${value}`)]);
}

async function open(model: string | Uint8Array) {
  const session = await createSession(model, { backend: 'native', threads: 2 });
  const { outputNames, report } = session;
  return { outputNames, report, run: session.run.bind(session) };
}

describe('a model with its weights in another file', () => {
  const folder = mkdtempSync(join(tmpdir(), 'mxattn-'));
  const path = join(folder, 'model.onnx');
  afterAll(() => rmSync(folder, { recursive: true }));

  it('keeps location, offset and length of each, and answers as before', async () => {
    const model = zooModel(name);
    const whole = await runStock(model, zooFeeds(name));
    writeFileSync(join(folder, 'weights.bin'), externalize(model, 'weights.bin'));
    writeFileSync(path, writeModel(model));

    const { model: converted, report } = convertModel(path);
    expect(report.replaced).toHaveLength(2);
    expect(externalEntries(converted).length).toBeGreaterThan(10);
    expect(externalEntries(converted)).toEqual(externalEntries(readModel(path)));
    const fromBytes = convertModel(readFileSync(path)).model;
    expect(externalEntries(fromBytes)).toEqual(externalEntries(converted));
    const convertedPath = join(folder, 'converted.onnx');
    writeFileSync(convertedPath, writeModel(converted));
    const answers = await runStock(convertedPath, zooFeeds(name));
    for (const [output, expected] of Object.entries(whole)) {
      expect(relativeError(answers[output] as never, expected as never)).toBeLessThan(1e-4);
    }
  });

  it('runs in a session opened by path; by bytes its weights are nowhere', async () => {
    const { outputNames, ...session } = await open(path);
    const answers = await session.run(zooFeeds(name));
    const whole = await runStock(zooModel(name), zooFeeds(name));
    expect(session.report.replaced).toHaveLength(2);
    for (const output of outputNames) {
      expect(relativeError(answers[output] as never, whole[output] as never)).toBeLessThan(1e-4);
    }
    await expect(open(readFileSync(path))).rejects.toThrow(/weights\.bin/);
  });

  it('runs in a session that is given its weights as bytes', async () => {
    const data = new Uint8Array(readFileSync(join(folder, 'weights.bin')));
    const create = (bytes: Uint8Array) =>
      createSession(readFileSync(path), {
        backend: 'native',
        threads: 2,
        externalData: [{ path: 'weights.bin', data: bytes }],
      });
    const session = await create(data);
    const answers = await session.run(zooFeeds(name));
    const whole = await runStock(zooModel(name), zooFeeds(name));
    for (const output of session.outputNames) {
      expect(relativeError(answers[output] as never, whole[output] as never)).toBeLessThan(1e-4);
    }
    await expect(create(data.subarray(0, 5000))).rejects.toThrow(
      /tensor ".*" is at \d+ to \d+ of "weights\.bin", which has 5000 bytes/,
    );
  });

  it('is converted without its weights being read', () => {
    const model = zooModel(name);
    // Nothing reads them, so there is no need for the file to exist.
    const size = 2 ** 30;
    const weights = model.graph!.initializer.filter((tensor) => tensor.rawData.byteLength >= 1024);
    weights.forEach((tensor, index) => {
      describeExternal(tensor, 'large.bin', index * size, size);
    });
    writeFileSync(path, writeModel(model));
    const before = process.memoryUsage();
    const start = performance.now();
    const { report } = convertModel(path);
    expect(performance.now() - start).toBeLessThan(2000);
    expect(process.memoryUsage().arrayBuffers - before.arrayBuffers).toBeLessThan(20e6);
    expect(report.replaced).toHaveLength(2);
  });
});
