import { attribute } from './attributes.js';
import type { GraphProto, NodeProto } from './onnx_pb.js';

/** An output that is an input unchanged, always or with one value of a bool input. */
export interface PassedValue {
  readonly input: string;
  readonly when?: { readonly input: string; readonly value: boolean };
}

/** The outputs of a graph that inputs are handed on to, through Identity and the branches of If. */
export function passedValues(graph: GraphProto): Map<string, readonly PassedValue[]> {
  const outer = new Values(graph);
  const inputs = new Set(graph.input.map(({ name }) => name));
  const passed = new Map<string, readonly PassedValue[]>();
  for (const { name } of graph.output) {
    const value = outer.origin(name);
    if (inputs.has(value)) passed.set(name, [{ input: value }]);
    const node = outer.producer(value);
    if (node?.opType !== 'If') continue;
    const condition = outer.origin(node.input[0]!);
    if (!inputs.has(condition)) continue;
    const branches = [true, false].flatMap((taken) => {
      const body = attribute(node, taken ? 'then_branch' : 'else_branch')?.g;
      if (!body) return [];
      const inner = new Values(body);
      const result = inner.origin(body.output[node.output.indexOf(value)]!.name);
      if (inner.makes(result)) return [];
      const input = outer.origin(result);
      return inputs.has(input) ? [{ input, when: { input: condition, value: taken } }] : [];
    });
    if (branches.length > 0) passed.set(name, branches);
  }
  return passed;
}

class Values {
  private readonly producers = new Map<string, NodeProto>();
  private readonly initializers: ReadonlySet<string>;

  constructor(graph: GraphProto) {
    for (const node of graph.node) for (const output of node.output) this.producers.set(output, node);
    this.initializers = new Set(graph.initializer.map(({ name }) => name));
  }

  producer(value: string): NodeProto | undefined {
    return this.producers.get(value);
  }

  /** Whether a value is made in this graph, not around it. */
  makes(value: string): boolean {
    return this.producers.has(value) || this.initializers.has(value);
  }

  /** The value that this one is, seen through Identity. */
  origin(value: string): string {
    const node = this.producers.get(value);
    return node?.opType === 'Identity' && node.domain === '' ? this.origin(node.input[0]!) : value;
  }
}
