import { bodies } from './attributes.js';
import { declaredFact, type Fact, merge, nothing } from './facts.js';
import type { GraphProto, ModelProto, NodeProto, TensorProto } from './onnx_pb.js';
import { rules } from './rules/index.js';
import { freshSymbol } from './symbols.js';
import { smallTensor } from './tensors.js';

/** Operator set versions a model imports, by domain; the default domain is ''. */
export type Opsets = ReadonlyMap<string, number>;

/** The operator sets a model imports. `ai.onnx` is the default domain's other name. */
export function opsets(model: Pick<ModelProto, 'opsetImport'>): Opsets {
  return new Map(model.opsetImport.map(({ domain, version }) => [defaultDomain(domain), Number(version)]));
}

/** The domain by its canonical name. */
export function defaultDomain(domain: string): string {
  return domain === 'ai.onnx' ? '' : domain;
}

/**
 * One graph seen as a graph: who makes a value, who uses it, and what is known about it. A body of If, Loop
 * or Scan is a graph of its own that also sees the values of the graphs around it.
 */
export class GraphIndex {
  /** The bodies of this graph's nodes, in node order. */
  readonly inner: readonly GraphIndex[];
  /** What comes out, in the order of the graph's outputs. */
  readonly results: readonly Fact[];
  private readonly producers = new Map<string, NodeProto>();
  private readonly users = new Map<string, NodeProto[]>();
  private readonly initializers = new Map<string, TensorProto>();
  private readonly inputs: ReadonlySet<string>;
  private readonly outputs: ReadonlySet<string>;
  private readonly facts = new Map<string, Fact>();

  constructor(
    readonly graph: GraphProto,
    readonly opsets: Opsets,
    readonly outer?: GraphIndex,
  ) {
    for (const tensor of graph.initializer) this.initializers.set(tensor.name, tensor);
    this.inputs = new Set(graph.input.map((input) => input.name));
    this.outputs = new Set(graph.output.map((output) => output.name));
    for (const node of graph.node) {
      for (const output of node.output) if (output !== '') this.producers.set(output, node);
      for (const value of usedValues(node)) {
        const users = this.users.get(value);
        if (users) users.push(node);
        else this.users.set(value, [node]);
      }
    }
    this.inner = this.inferFacts();
    this.results = graph.output.map((output) => this.fact(output.name));
  }

  /** The node that computes a value; undefined for inputs, initializers and unknown names. */
  producer(value: string): NodeProto | undefined {
    if (this.producers.has(value)) return this.producers.get(value);
    return this.isLocal(value) ? undefined : this.outer?.producer(value);
  }

  /** The nodes of this graph that use a value, themselves or in their bodies. */
  consumers(value: string): readonly NodeProto[] {
    return this.users.get(value) ?? [];
  }

  /** The initializer of that name. */
  initializer(value: string): TensorProto | undefined {
    return this.initializers.get(value) ?? (this.isLocal(value) ? undefined : this.outer?.initializer(value));
  }

  /** Whether a value is an input of this graph or of one around it, and not just an initializer's name. */
  isInput(value: string): boolean {
    if (this.inputs.has(value)) return !this.initializers.has(value);
    return !this.isLocal(value) && (this.outer?.isInput(value) ?? false);
  }

  isOutput(value: string): boolean {
    return this.outputs.has(value);
  }

  /** Whether a value belongs to this graph, as opposed to one around it. */
  isLocal(value: string): boolean {
    return this.producers.has(value) || this.initializers.has(value) || this.inputs.has(value);
  }

  /** What is known about a value. */
  fact(value: string | undefined): Fact {
    if (!value) return nothing;
    return this.facts.get(value) ?? this.outer?.fact(value) ?? nothing;
  }

  private inferFacts(): GraphIndex[] {
    const { graph, facts } = this;
    const inner: GraphIndex[] = [];
    for (const info of graph.input) facts.set(info.name, declaredFact(info));
    for (const tensor of graph.initializer) {
      // The value of an initializer that is also an input may be replaced when the model runs.
      const fixed = this.inputs.has(tensor.name) ? undefined : smallTensor(tensor);
      facts.set(tensor.name, fixed ?? { type: tensor.dataType, dims: tensor.dims.map(Number) });
    }
    const declared = new Map(
      [...graph.valueInfo, ...graph.output].map((info) => [info.name, declaredFact(info)]),
    );
    for (const node of graph.node) {
      const at = {
        node,
        opset: this.opsets.get(defaultDomain(node.domain)) ?? 1,
        input: (index: number) => this.fact(node.input[index]),
      };
      const own = bodies(node).map((body) => new GraphIndex(body, this.opsets, this));
      inner.push(...own);
      const inferred = node.opType === 'If' ? eitherBranch(own) : [rules.get(node.opType)?.(at) ?? []].flat();
      node.output.forEach((output, index) => {
        if (output !== '') facts.set(output, merge(inferred[index] ?? nothing, declared.get(output)));
      });
    }
    return inner;
  }
}

/** What both branches of an If say of its outputs. */
function eitherBranch([first, second]: readonly GraphIndex[]): Fact[] {
  return (first?.results ?? []).map((fact, index) => {
    const other = second?.results[index] ?? nothing;
    const same = fact.dims && other.dims?.length === fact.dims.length;
    return {
      type: fact.type === other.type ? fact.type : undefined,
      dims: same
        ? fact.dims.map((dim, axis) => (dim === other.dims?.[axis] ? dim : freshSymbol()))
        : undefined,
    };
  });
}

/** Every value a node uses of the graph it is in, itself or from within its bodies. */
export function usedValues(node: NodeProto): Set<string> {
  const used = new Set(node.input.filter((input) => input !== ''));
  for (const body of bodies(node)) {
    const inner = new Set(body.output.map((output) => output.name));
    for (const each of body.node) for (const value of usedValues(each)) inner.add(value);
    for (const each of body.node) for (const output of each.output) inner.delete(output);
    for (const each of [...body.input, ...body.initializer]) inner.delete(each.name);
    for (const value of inner) used.add(value);
  }
  return used;
}
