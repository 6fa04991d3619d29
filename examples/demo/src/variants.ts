import { hybrid, hybridLayers, type PrecisionName, type Schedule, schedule } from '@mxattn/core';
import { STEPS } from '@mxattn/example-diffusion';

/** A way to run both models. */
export interface Variant {
  readonly name: string;
  /** What it means, for the report. */
  readonly description: string;
  /** Null: without mxattn. */
  readonly llm: Schedule | null;
  readonly diffusion: Schedule | null;
}

const stock: Variant = {
  name: 'stock',
  description: 'transformers.js and ONNX Runtime as they are',
  llm: null,
  diffusion: null,
};

function uniform(precision: PrecisionName | string, description: string): Variant {
  const plan = schedule(precision);
  return { name: precision, description, llm: plan, diffusion: plan };
}

const paper = { edges: 'mxfp6', middle: 'mxfp4' } as const;

/** Stock, exact, hybrid and all four-bit; or stock and one precision. */
export function demoVariants(precision: string | undefined): Variant[] {
  if (precision !== undefined) return [stock, uniform(precision, 'one precision throughout')];
  return [
    stock,
    uniform('f32', "mxattn's attention in f32"),
    {
      name: 'hybrid',
      description: 'MXFP6 in the first and last layer (text) or three steps (pictures), MXFP4 between',
      llm: hybridLayers({ edge: 1, ...paper }),
      diffusion: hybrid({ steps: STEPS, edge: 3, ...paper }),
    },
    uniform('mxfp4', 'MXFP4 throughout'),
  ];
}
