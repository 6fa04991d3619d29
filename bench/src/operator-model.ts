import { BinaryWriter, WireType } from '@bufbuild/protobuf/wire';

/** A float tensor at the edge of a model; null sizes are free. */
export interface Edge {
  readonly name: string;
  readonly dims: readonly (number | null)[];
  /** ONNX's element type: 1 float32, 6 int32. */
  readonly type?: number;
}

/** An operator by its edges' names. */
export interface Node {
  /** Empty for the standard operators. */
  readonly domain: string;
  readonly operator: string;
  readonly inputs: readonly string[];
  readonly outputs: readonly string[];
  readonly attributes: Readonly<Record<string, { readonly int: number } | { readonly float: number }>>;
}

/** A few operators as a model of their own. */
export interface GraphModel {
  readonly nodes: readonly Node[];
  readonly inputs: readonly Edge[];
  readonly outputs: readonly Edge[];
  /** Version of the standard operators; default 17. */
  readonly opset?: number;
}

/** One operator as a model of its own. */
export interface OperatorModel extends Omit<Node, 'inputs' | 'outputs'> {
  readonly inputs: readonly Edge[];
  readonly outputs: readonly Edge[];
}

/** The bytes of a model of one operator. */
export function operatorModel({ inputs, outputs, ...node }: OperatorModel): Uint8Array {
  const names = (edges: readonly Edge[]) => edges.map(({ name }) => name);
  return graphModel({
    nodes: [{ ...node, inputs: names(inputs), outputs: names(outputs) }],
    inputs,
    outputs,
  });
}

/** The bytes of the model (onnx.proto, ModelProto). */
export function graphModel({ nodes, inputs, outputs, opset = 17 }: GraphModel): Uint8Array {
  const graph = new BinaryWriter();
  for (const node of nodes) graph.uint32(10).bytes(nodeBytes(node));
  graph.uint32(18).string('bench');
  for (const edge of inputs) graph.tag(11, WireType.LengthDelimited).bytes(valueInfo(edge));
  for (const edge of outputs) graph.tag(12, WireType.LengthDelimited).bytes(valueInfo(edge));
  const model = new BinaryWriter().tag(1, WireType.Varint).int64(opset > 20 ? 10 : 8);
  model.tag(7, WireType.LengthDelimited).bytes(graph.finish());
  for (const domain of new Set(['', ...nodes.map((node) => node.domain)])) {
    model.tag(8, WireType.LengthDelimited).fork().tag(1, WireType.LengthDelimited).string(domain);
    model
      .tag(2, WireType.Varint)
      .int64(domain === '' ? opset : 1)
      .join();
  }
  return model.finish();
}

function nodeBytes({ domain, operator, inputs, outputs, attributes }: Node): Uint8Array {
  const node = new BinaryWriter();
  for (const name of inputs) node.uint32(10).string(name);
  for (const name of outputs) node.uint32(18).string(name);
  node.uint32(26).string(outputs.join()).uint32(34).string(operator).uint32(58).string(domain);
  for (const [name, value] of Object.entries(attributes)) {
    node.uint32(42).fork().uint32(10).string(name);
    if ('int' in value) node.tag(3, WireType.Varint).int64(value.int).tag(20, WireType.Varint).int32(2);
    else node.tag(2, WireType.Bit32).float(value.float).tag(20, WireType.Varint).int32(1);
    node.join();
  }
  return node.finish();
}

function valueInfo({ name, dims, type = 1 }: Edge): Uint8Array {
  const writer = new BinaryWriter().tag(1, WireType.LengthDelimited).string(name);
  writer.tag(2, WireType.LengthDelimited).fork().tag(1, WireType.LengthDelimited).fork();
  writer.tag(1, WireType.Varint).int32(type).tag(2, WireType.LengthDelimited).fork();
  dims.forEach((dim, axis) => {
    writer.tag(1, WireType.LengthDelimited).fork();
    if (dim === null) writer.tag(2, WireType.LengthDelimited).string(`${name}_${axis}`);
    else writer.tag(1, WireType.Varint).int64(dim);
    writer.join();
  });
  return writer.join().join().join().finish();
}
