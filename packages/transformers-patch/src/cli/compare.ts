import { MxattnError } from '@mxattn/core';
import { convertModel, createSession, modelInputs, readModel, withOutputs, writeModel } from '@mxattn/ort-op';
import { Command } from 'commander';
import type { Tensor } from 'onnxruntime-common';
import { modelFeeds } from './inputs.js';
import { numbersOf } from './numbers.js';
import { numberOption, planOf, positiveOption } from './options.js';
import { printJson, printTable } from './output.js';
import { running } from './running.js';

interface CompareOptions {
  readonly inputs?: string;
  readonly precision?: string;
  readonly schedule?: string;
  readonly step?: number;
  readonly length: number;
  readonly threads: number;
  readonly tolerance?: number;
  readonly json?: boolean;
}

/** How far one tensor is from another. */
export interface Difference {
  readonly name: string;
  /** ||a - b|| / ||b||. */
  readonly relativeError: number;
  readonly cosine: number;
  /** Largest |a - b|. */
  readonly largest: number;
}

/** What f32 attention may differ by, and what a quantised one that works stays well below. */
const TOLERANCE = { exact: 1e-4, quantised: 0.5 };

/** `mxattn compare MODEL` */
export function compareCommand(): Command {
  return new Command('compare')
    .description('Runs a model stock and converted, and compares every output and every attention.')
    .argument('<model>', 'an ONNX file')
    .option('--inputs <file>', 'a safetensors file with the inputs; default: made up')
    .option('--precision <name>', 'f32, mxfp6 or mxfp4 (default: f32)')
    .option('--schedule <schedule>', 'a schedule, e.g. 3:mxfp6/14:mxfp4/3:mxfp6')
    .option('--step <n>', 'the step of the schedule to run', numberOption('step'))
    .option('--length <n>', 'size of the free axes of made-up inputs', positiveOption('length'), 64)
    .option('--threads <n>', 'threads within an operator', positiveOption('threads'), 2)
    .option(
      '--tolerance <error>',
      'relative error of an output above which the exit code is 1',
      numberOption('tolerance'),
    )
    .option('--json', 'print JSON')
    .addHelpText(
      'after',
      '\nThe exit code is 1 where an output differs by more than the tolerance (default 1e-4 at f32, else 0.5).\n\n' +
        'Examples:\n  mxattn compare model.onnx\n  mxattn compare model.onnx --precision mxfp4 --inputs batch.safetensors',
    )
    .action(async (path: string, options: CompareOptions) => {
      const plan = planOf(options);
      const result = await running(path, () => compare(path, options));
      const exact = plan.precisions.every((name) => name === 'f32');
      const tolerance = options.tolerance ?? (exact ? TOLERANCE.exact : TOLERANCE.quantised);
      const differs = result.outputs.some(({ relativeError }) => !(relativeError <= tolerance));
      if (options.json) {
        printJson({ model: path, schedule: plan, tolerance, differs, ...result });
      } else {
        printTable('attention', result.attention.map(row));
        printTable('outputs', result.outputs.map(row));
        console.log(differs ? `differs: an output is off by more than ${tolerance}` : `within ${tolerance}`);
      }
      if (differs) process.exitCode = 1;
    });
}

function row({ name, relativeError, cosine, largest }: Difference) {
  return { name, 'relative error': relativeError, cosine, 'largest difference': largest };
}

async function compare(path: string, options: CompareOptions) {
  const original = readModel(path);
  const { model, report } = convertModel(original);
  if (report.replaced.length === 0)
    throw new MxattnError(`${path} has no attention to replace; see mxattn inspect`);
  // Values of bodies of If and Loop cannot be outputs.
  const values = new Set(original.graph?.node.flatMap((node) => node.output));
  const attentions = report.replaced.map(({ output }) => output).filter((output) => values.has(output));
  const feeds = modelFeeds(modelInputs(original), { file: options.inputs, length: options.length });
  const { threads, step } = options;
  const stock = await createSession(writeModel(withOutputs(original, attentions)), {
    backend: 'stock',
    threads,
  });
  const fused = await createSession(writeModel(withOutputs(model, attentions)), {
    backend: 'native',
    schedule: planOf(options),
    kvCache: 'tensors',
    threads,
  });
  const expected = await stock.run(feeds);
  const actual = await fused.run(feeds, step === undefined ? {} : { step });
  const differences = stock.outputNames.flatMap((name) => {
    const [a, b] = [actual[name], expected[name]].map((tensor) => numbersOf(tensor as Tensor));
    return a && b ? [difference(name, a, b)] : [];
  });
  const isAttention = ({ name }: Difference) => attentions.includes(name);
  return {
    attention: differences.filter(isAttention),
    outputs: differences.filter((each) => !isAttention(each)),
  };
}

function difference(name: string, a: Float32Array, b: Float32Array): Difference {
  let [squares, dot, normA, normB, largest] = [0, 0, 0, 0, 0];
  for (let i = 0; i < b.length; i++) {
    const [x, y] = [a[i]!, b[i]!];
    // Infinities, as in masks that a model hands out, are equal or not.
    if (Object.is(x, y)) {
      if (!Number.isFinite(y)) continue;
    }
    squares += (x - y) ** 2;
    dot += x * y;
    normA += x * x;
    normB += y * y;
    largest = Math.max(largest, Math.abs(x - y));
  }
  return {
    name,
    relativeError: squares === 0 ? 0 : Math.sqrt(squares / normB),
    cosine: squares === 0 ? 1 : dot / Math.sqrt(normA * normB),
    largest,
  };
}
