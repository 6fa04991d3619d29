import { create } from '@bufbuild/protobuf';
import { DataType } from './element-types.js';
import {
  type AttributeProto,
  AttributeProtoSchema,
  AttributeProto_AttributeType as AttributeType,
  type NodeProto,
  NodeProtoSchema,
  type TensorProto,
} from './onnx_pb.js';
import { tensorProto } from './tensors.js';

/** Attributes of new nodes. */
export const attributes = {
  float: (name: string, f: number): AttributeProto =>
    create(AttributeProtoSchema, { name, type: AttributeType.FLOAT, f }),
  int: (name: string, i: number): AttributeProto =>
    create(AttributeProtoSchema, { name, type: AttributeType.INT, i: BigInt(i) }),
  ints: (name: string, ints: readonly number[]): AttributeProto =>
    create(AttributeProtoSchema, { name, type: AttributeType.INTS, ints: ints.map(BigInt) }),
  string: (name: string, s: string): AttributeProto =>
    create(AttributeProtoSchema, { name, type: AttributeType.STRING, s: new TextEncoder().encode(s) }),
  tensor: (name: string, t: TensorProto): AttributeProto =>
    create(AttributeProtoSchema, { name, type: AttributeType.TENSOR, t }),
  /** In a function body: the float attribute that the function is called with. */
  floatParameter: (name: string, parameter: string): AttributeProto =>
    create(AttributeProtoSchema, { name, type: AttributeType.FLOAT, refAttrName: parameter }),
  /** Likewise, an integer attribute. */
  intParameter: (name: string, parameter: string): AttributeProto =>
    create(AttributeProtoSchema, { name, type: AttributeType.INT, refAttrName: parameter }),
} as const;

/** A list of new nodes in the making, with names that share a prefix. */
export class NodeList {
  readonly nodes: NodeProto[] = [];

  constructor(
    private readonly prefix: string,
    /** Version of the default operator set the nodes belong to. */
    readonly opset: number,
  ) {}

  /**
   * Appends a node of the default domain with one output and returns the name of that output, a new one unless
   * it is given.
   */
  add(
    opType: string,
    input: readonly string[],
    attribute: readonly AttributeProto[] = [],
    output = `${this.prefix}${opType}_${this.nodes.length}`,
  ): string {
    this.push({ opType, name: output, input, output: [output], attribute });
    return output;
  }

  /** Appends a node. */
  push(node: {
    opType: string;
    name: string;
    domain?: string;
    input: readonly string[];
    output: readonly string[];
    attribute: readonly AttributeProto[];
  }): void {
    this.nodes.push(
      create(NodeProtoSchema, {
        ...node,
        input: [...node.input],
        output: [...node.output],
        attribute: [...node.attribute],
      }),
    );
  }

  /** Integers as a 1-D tensor. */
  ints(...values: number[]): string {
    return this.constant(tensorProto(DataType.INT64, [values.length], values));
  }

  /** An integer as a tensor without axes. */
  int(value: number): string {
    return this.constant(tensorProto(DataType.INT64, [], [value]));
  }

  /** One number as a tensor without axes. */
  float(value: number): string {
    return this.constant(tensorProto(DataType.FLOAT, [], [value]));
  }

  /** The parts one behind the other, along the first axis. */
  concat(...parts: string[]): string {
    return this.add('Concat', parts, [attributes.int('axis', 0)]);
  }

  unsqueeze(value: string, axis: number): string {
    if (this.opset >= 13) return this.add('Unsqueeze', [value, this.ints(axis)]);
    return this.add('Unsqueeze', [value], [attributes.ints('axes', [axis])]);
  }

  transpose(value: string, permutation: readonly number[]): string {
    return this.add('Transpose', [value], [attributes.ints('perm', permutation)]);
  }

  /** The value in an element type; itself where it has that already. */
  cast(value: string, from: DataType | undefined, to: DataType): string {
    return from === to ? value : this.add('Cast', [value], [attributes.int('to', to)]);
  }

  /** The elements of an axis from `start` up to `end`. */
  slice(value: string, axis: number, start: number, end: number): string {
    return this.add('Slice', [value, this.ints(start), this.ints(end), this.ints(axis)]);
  }

  /** The elements at one place of an axis, without the axis. */
  pick(value: string, axis: number, index: number): string {
    return this.add('Gather', [value, this.int(index)], [attributes.int('axis', axis)]);
  }

  /** The sizes of a tensor's axes from `start` up to `end`. */
  sizes(value: string, start: number, end: number): string {
    return this.add('Slice', [this.add('Shape', [value]), this.ints(start), this.ints(end)]);
  }

  private constant(tensor: TensorProto): string {
    return this.add('Constant', [], [attributes.tensor('value', tensor)]);
  }
}
