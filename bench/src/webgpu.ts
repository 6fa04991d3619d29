/// <reference types="@webgpu/types" />
import { spawnSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { attentionSpec, type PrecisionName, recipes } from '@mxattn/core';
import { KvCache, planAttention, type Step } from '@mxattn/ort-op/webgpu';
import { describeGpu, openGpu } from '@mxattn/ort-op/webgpu-node';
import { type GpuPeaks, measureGpuPeaks } from './gpu-peaks.js';
import { GpuTimer } from './gpu-timer.js';
import { Random } from './random.js';
import type { BenchmarkResult, Row } from './row.js';
import { ortWebgpuPeer } from './webgpu-peer.js';

const ROUNDS = 9;

interface Shape {
  readonly heads: number;
  readonly kvHeads: number;
  readonly queryLength: number;
  readonly keyLength: number;
  readonly headSize: number;
}

const PREFILL: readonly Shape[] = [
  { heads: 16, kvHeads: 16, queryLength: 8192, keyLength: 8192, headSize: 128 },
  { heads: 8, kvHeads: 8, queryLength: 4096, keyLength: 4096, headSize: 64 },
];

const DECODE: readonly Shape[] = [8192, 32768].map((keyLength) => ({
  heads: 32,
  kvHeads: 8,
  queryLength: 1,
  keyLength,
  headSize: 128,
}));

/** On an adapter in software the shapes of a GPU would take hours. */
const SMALL = {
  prefill: { heads: 1, kvHeads: 1, queryLength: 256, keyLength: 256, headSize: 64 },
  decode: 512,
};

/** A way to attend. */
interface Variant {
  readonly name: string;
  readonly precision: PrecisionName;
  readonly matrix: boolean;
}

const VARIANTS: readonly Variant[] = [
  { name: 'matrix units', precision: 'mxfp4', matrix: true },
  { name: 'matrix units', precision: 'mxfp6', matrix: true },
  { name: 'matrix units', precision: 'mxfp8', matrix: true },
  { name: 'standard WGSL', precision: 'mxfp4', matrix: false },
  { name: 'standard WGSL', precision: 'mxfp6', matrix: false },
  { name: 'standard WGSL', precision: 'mxfp8', matrix: false },
  { name: 'standard WGSL', precision: 'f32', matrix: false },
];

/** A peer as it was measured, in milliseconds. */
interface Peer {
  readonly name: string;
  readonly time: number;
}

/**
 * The WebGPU kernels on this machine's GPU, by its own clock, operands on the GPU in float32, beside ONNX Runtime's WebGPU
 * provider in float16 and, where it is, PyTorch in bfloat16.
 */
export async function webgpuBenchmark(): Promise<BenchmarkResult> {
  const description = await describeGpu();
  if (typeof description === 'string') throw new Error(description);
  const { device } = await openGpu();
  const software = /swiftshader|llvmpipe/i.test(description.name);
  const timer = new GpuTimer(device, software);
  const hasMatrices = description.kernels.mxfp4!.startsWith('subgroup matrices');
  await timer.warmUp(software ? 0 : 300);
  const peaks = software ? {} : await measureGpuPeaks(device, timer, hasMatrices);
  const prefill = software ? [SMALL.prefill] : PREFILL;
  const decode = software
    ? DECODE.slice(0, 1).map((shape) => ({ ...shape, keyLength: SMALL.decode }))
    : DECODE;
  const torch = software ? new Map<string, Peer[]>() : torchPeers([...prefill, ...decode]);
  const rows: Row[] = [];
  for (const shape of prefill) {
    const variants = VARIANTS.filter(({ matrix }) => !matrix || hasMatrices);
    rows.push(
      ...(await prefillRows(device, timer, shape, variants, peaks, software, torch.get(key(shape)) ?? [])),
    );
  }
  for (const shape of decode)
    rows.push(...(await decodeRows(device, timer, shape, software, torch.get(key(shape)) ?? [])));
  const machine = Object.fromEntries(
    Object.entries(peaks).map(([name, rate]) => [`${name} Top/s`, Math.round(rate as number)]),
  );
  return { machine: { gpu: description.name, ...machine }, rows };
}

function key({ heads, kvHeads, queryLength, keyLength, headSize }: Shape): string {
  return [heads, kvHeads, queryLength, keyLength, headSize].join();
}

const random = new Random(1);

function normal(count: number): Float32Array<ArrayBuffer> {
  return Float32Array.from({ length: count }, () => random.normal());
}

function operand(device: GPUDevice, count: number, filled = true): GPUBuffer {
  const buffer = device.createBuffer({
    size: count * 4,
    usage: GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_DST,
  });
  if (filled) device.queue.writeBuffer(buffer, 0, normal(count));
  return buffer;
}

function median(values: readonly number[]): number {
  return [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)]!;
}

/** One row for each peer, or one without. */
function rowsFor(row: Omit<Row, 'peer' | 'peerName' | 'ratio'>, peers: readonly Peer[]): Row[] {
  const beside = peers.length > 0 ? peers : [{ name: 'none', time: Number.NaN }];
  return beside.map(({ name, time }) => ({ ...row, peer: time, peerName: name, ratio: time / row.ours }));
}

/** The peers of a shape, ONNX Runtime measured now. */
async function allPeers(shape: Shape, software: boolean, torch: readonly Peer[]): Promise<Peer[]> {
  const run = software ? undefined : await ortWebgpuPeer(shape);
  if (!run) return [...torch];
  await run();
  const times: number[] = [];
  for (let round = 0; round < 5; round++) times.push(await run());
  return [{ name: 'ONNX Runtime WebGPU f16', time: median(times) }, ...torch];
}

async function prefillRows(
  device: GPUDevice,
  timer: GpuTimer,
  shape: Shape,
  variants: readonly Variant[],
  peaks: GpuPeaks,
  software: boolean,
  torch: readonly Peer[],
): Promise<Row[]> {
  const spec = attentionSpec(shape);
  const count = shape.heads * shape.queryLength * shape.headSize;
  const buffers = {
    query: operand(device, count),
    key: operand(device, count),
    value: operand(device, count),
    output: operand(device, count, false),
  };
  const plans = await Promise.all(
    variants.map(({ precision, matrix }) =>
      planAttention(
        device,
        spec,
        recipes[precision],
        { biasStrides: null, sinks: false },
        { unroll: !software, matrix },
      ),
    ),
  );
  const timed = plans.map((plan) => {
    const steps = plan.steps(buffers);
    const attends = ({ name }: Step) => name.startsWith('attend');
    return {
      attend: steps.filter(attends),
      quantise: steps.filter((step) => !attends(step)),
      times: [[], []] as [number[], number[]],
    };
  });
  await timer.warmUp(software ? 0 : 300);
  for (let round = -1; round < (software ? 1 : ROUNDS); round++) {
    for (const { attend, quantise, times } of timed) {
      const measured = [quantise.length ? await timer.time(quantise) : 0, await timer.time(attend)] as const;
      if (round < 0) continue;
      times[0].push(measured[0]);
      times[1].push(measured[1]);
    }
  }
  const peers = await allPeers(shape, software, torch);
  const operations = 4 * count * shape.keyLength;
  const rows = variants.flatMap(({ name, precision, matrix }, i) => {
    const [quantise, ours] = timed[i]!.times.map(median) as [number, number];
    const ideal = operations * (matrix ? matrixCost(peaks, precision) : 1 / (peaks.dot4 ?? 0));
    const floats = !matrix && (precision === 'f32' || precision === 'mxfp8');
    const rate = (operations / ours / 1e9).toFixed(0);
    const row = {
      name: `prefill, ${name}, ${precision} (${rate} Tflop/s)`,
      shape: `1,${key(shape)}`,
      ours,
      ...(precision === 'f32' ? {} : { quantise }),
      ...(!floats && Number.isFinite(ideal) ? { percentOfPeak: (100 * ideal) / 1e9 / ours } : {}),
    };
    return rowsFor(row, peers);
  });
  for (const plan of plans) plan.destroy();
  for (const buffer of Object.values(buffers)) buffer.destroy();
  return rows;
}

/** Reciprocal of the rate at which matrix units do the products: scores on 8-bit or float16 ones, the rest on float16 ones. */
function matrixCost({ i8Matrix = 0, f16Matrix = 0 }: GpuPeaks, precision: PrecisionName): number {
  return 0.5 / (precision === 'mxfp8' ? f16Matrix : i8Matrix) + 0.5 / f16Matrix;
}

async function decodeRows(
  device: GPUDevice,
  timer: GpuTimer,
  shape: Shape,
  software: boolean,
  torch: readonly Peer[],
): Promise<Row[]> {
  const { heads, kvHeads, keyLength, headSize } = shape;
  const count = kvHeads * (keyLength - 1) * headSize;
  const keys = operand(device, count);
  const values = operand(device, count);
  // So many caches that none stays in the GPU's own caches until its next turn.
  const caches = software ? 1 : Math.max(4, Math.ceil(2 ** 17 / keyLength));
  const steps: (readonly Step[])[] = [];
  const opened: KvCache[] = [];
  for (let i = 0; i < caches; i++) {
    const cache = await KvCache.create(device, { batch: 1, heads, kvHeads, headSize });
    opened.push(cache);
    // Lengths differ: of 32 tokens one fills a panel.
    await timer.time(cache.append(keys, values, keyLength - 1 - (i % 32)));
    steps.push(
      cache.step({
        query: operand(device, heads * headSize),
        key: operand(device, kvHeads * headSize),
        value: operand(device, kvHeads * headSize),
        output: operand(device, heads * headSize, false),
      }),
    );
  }
  const repeats = software ? 1 : 48;
  const repeated = (part: (step: readonly Step[]) => readonly Step[]) =>
    Array.from({ length: repeats }, (_, i) => part(steps[i % caches]!)).flat();
  const attend = repeated((all) => all.slice(1));
  const append = repeated((all) => all.slice(0, 1));
  await timer.warmUp(software ? 0 : 300);
  const times: [number[], number[]] = [[], []];
  for (let round = -3; round < (software ? 1 : ROUNDS); round++) {
    const measured = [await timer.time(append), await timer.time(attend)];
    if (round < 0) continue;
    times[0].push(measured[0]! / repeats);
    times[1].push(measured[1]! / repeats);
  }
  const [appending, ours] = times.map(median) as [number, number];
  const peers = await allPeers(shape, software, torch);
  for (const cache of opened) cache.destroy();
  const row = { shape: `1,${key(shape)}` };
  return [
    ...rowsFor({ ...row, name: 'decode, mxfp4 cache', ours }, peers),
    ...rowsFor({ ...row, name: 'append and decode, mxfp4 cache', ours: ours + appending }, peers),
    ...rowsFor({ ...row, name: 'append one token, mxfp4 cache', ours: appending }, []),
  ];
}

/** PyTorch's attentions by shape; empty without PyTorch or CUDA. */
function torchPeers(shapes: readonly Shape[]): Map<string, Peer[]> {
  // The script stays beside the sources.
  const script = fileURLToPath(new URL('../src/torch-peer.py', import.meta.url));
  const { status, stdout } = spawnSync('python3', [script, ...shapes.map(key)], { encoding: 'utf8' });
  if (status !== 0) {
    console.warn('skipped: PyTorch with CUDA, which is not there');
    return new Map();
  }
  const times = JSON.parse(stdout) as Record<string, Record<string, number>>;
  return new Map(
    Object.entries(times).map(([shape, kernels]) => [
      shape,
      Object.entries(kernels).map(([name, time]) => ({ name: `PyTorch ${name} bf16`, time })),
    ]),
  );
}
