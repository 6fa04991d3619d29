import { type NativeFeed, openNativeSession } from '@mxattn/ort-op';
import { graphModel, type Node } from './operator-model.js';
import { Random } from './random.js';

const random = new Random(1);

/** Normal random numbers. */
export function normal(count: number): Float32Array {
  return Float32Array.from({ length: count }, () => random.normal());
}

/** A feed of floats or int32. */
export function feed(name: string, dims: readonly number[], data: Float32Array | Int32Array): NativeFeed {
  const { buffer, byteOffset, byteLength } = data;
  const type = data instanceof Float32Array ? 1 : 6;
  return { name, type, dims, data: new Uint8Array(buffer, byteOffset, byteLength) };
}

/** One operator and what it is fed. */
export interface Operator {
  readonly domain: string;
  readonly operator: string;
  readonly attributes: Node['attributes'];
  readonly feeds: readonly NativeFeed[];
  /** The feeds by name, as the operator takes them; default: in their order. */
  readonly inputs?: readonly string[];
  /** Outputs behind the first, which nobody reads. */
  readonly moreOutputs?: readonly string[];
}

/** Runs one operator with the same feeds again and again. */
export function operatorRunner(
  { domain, operator, attributes, feeds, inputs, moreOutputs = [] }: Operator,
  threads: number,
): Promise<() => Promise<unknown>> {
  const node = {
    domain,
    operator,
    inputs: inputs ?? feeds.map(({ name }) => name),
    outputs: ['output', ...moreOutputs],
    attributes,
  };
  return graphRunner([node], feeds, threads);
}

/**
 * Runs nodes, of which the last gives `output`, with the same feeds again and again. Only the largest element of the
 * output leaves the session, as in a model, where the output stays inside: handing out fresh megabytes costs page faults
 * that have nothing to do with it.
 */
export async function graphRunner(
  nodes: readonly Node[],
  feeds: readonly NativeFeed[],
  threads: number,
): Promise<() => Promise<unknown>> {
  const session = await openNativeSession(
    graphModel({
      nodes: [
        ...nodes,
        {
          domain: '',
          operator: 'ReduceMax',
          inputs: ['output'],
          outputs: ['largest'],
          attributes: { keepdims: { int: 0 } },
        },
      ],
      inputs: feeds,
      outputs: [{ name: 'largest', dims: [] }],
    }),
    { intraOpNumThreads: threads },
  );
  return () => session.run(feeds, ['largest'], []);
}
