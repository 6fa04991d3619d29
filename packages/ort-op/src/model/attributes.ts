import type { AttributeProto, GraphProto, NodeProto, TensorProto } from './onnx_pb.js';

const text = new TextDecoder();

/** The attribute of that name, if the node has it. */
export function attribute(node: NodeProto, name: string): AttributeProto | undefined {
  return node.attribute.find((each) => each.name === name);
}

/** An integer attribute, or `otherwise` where the node does not set it. */
export function intAttribute<T>(node: NodeProto, name: string, otherwise: T): number | T {
  const found = attribute(node, name);
  return found ? Number(found.i) : otherwise;
}

export function intsAttribute(node: NodeProto, name: string): number[] | undefined {
  return attribute(node, name)?.ints.map(Number);
}

export function floatAttribute<T>(node: NodeProto, name: string, otherwise: T): number | T {
  const found = attribute(node, name);
  return found ? found.f : otherwise;
}

export function stringAttribute(node: NodeProto, name: string): string | undefined {
  const found = attribute(node, name);
  return found && text.decode(found.s);
}

export function tensorAttribute(node: NodeProto, name: string): TensorProto | undefined {
  return attribute(node, name)?.t;
}

/** The bodies a node carries: branches of If, bodies of Loop and Scan. */
export function bodies(node: NodeProto): GraphProto[] {
  return node.attribute.flatMap((each) => (each.g ? [each.g, ...each.graphs] : each.graphs));
}
