/**
 * Small ONNX models from text, one node a line:
 *
 *     y z = domain.Operator<attribute=1, other=[1, 2]>(a, , 0.5, [2, -1], 3i)
 *
 * Inputs are names, nothing, or constants: `0.5` a float32, `3i` an int64 without axes, `[2, -1]` an int64
 * vector. Attributes are ints, floats (with a point), lists, strings in quotes, and `&name` for a graph of
 * {@link ModelText.graphs}. The bytes are written without the code under test.
 */
export interface ModelText {
  readonly nodes: string;
  /** Types as `f32[2,heads,?]`. */
  readonly inputs: Readonly<Record<string, string>>;
  readonly outputs: Readonly<Record<string, string>>;
  readonly opset?: number;
  readonly irVersion?: number;
  readonly initializers?: Readonly<
    Record<string, { dims: number[]; data: Float32Array | BigInt64Array | Int32Array | Int8Array }>
  >;
  readonly graphs?: Readonly<Record<string, BodyText>>;
  readonly functions?: readonly FunctionText[];
}

/** A body of If or Loop. */
export type BodyText = Pick<ModelText, 'nodes' | 'outputs'> & Partial<Pick<ModelText, 'inputs'>>;

/** A model-local function, of domain `local`. */
export interface FunctionText {
  readonly name: string;
  readonly inputs: readonly string[];
  readonly outputs: readonly string[];
  readonly attributes?: readonly string[];
  readonly nodes: string;
}

type Bytes = number[];

/** The bytes of the model. */
export function onnx(model: ModelText): Uint8Array {
  const opsets = Object.entries({ '': model.opset ?? 17, 'com.microsoft': 1, local: 1 });
  const opset = opsets.map(([domain, version]) => message(8, [...text(1, domain), ...varint(2, version)]));
  return Uint8Array.from([
    ...varint(1, model.irVersion ?? 8),
    ...message(7, graph(model, model)),
    ...opset.flat(),
    ...(model.functions ?? []).flatMap((each) => message(25, functionBody(each, opset.flat(), model))),
  ]);
}

function graph(
  part: Pick<ModelText, 'nodes' | 'outputs' | 'inputs' | 'initializers'>,
  model: ModelText,
): Bytes {
  const initializers = Object.entries(part.initializers ?? {}).flatMap(([name, { dims, data }]) => {
    const type = elementTypes[data.constructor.name] ?? 0;
    return message(5, tensor(type, dims, data, name));
  });
  return [
    ...nodes(part.nodes, model, 1),
    ...text(2, 'graph'),
    ...initializers,
    ...Object.entries(part.inputs).flatMap((each) => message(11, valueInfo(each))),
    ...Object.entries(part.outputs).flatMap((each) => message(12, valueInfo(each))),
  ];
}

const elementTypes: Readonly<Record<string, number>> = {
  Float32Array: 1,
  Int8Array: 3,
  Int32Array: 6,
  BigInt64Array: 7,
};

function functionBody(each: FunctionText, opset: Bytes, model: ModelText): Bytes {
  return [
    ...text(1, each.name),
    ...each.inputs.flatMap((name) => text(4, name)),
    ...each.outputs.flatMap((name) => text(5, name)),
    ...(each.attributes ?? []).flatMap((name) => text(6, name)),
    ...nodes(each.nodes, model, 7),
    // Field 9 of a function is field 8 of a model.
    ...opset.map((byte, index) => (byte === tag(8, 2) && isFieldStart(opset, index) ? tag(9, 2) : byte)),
    ...text(10, 'local'),
  ];
}

function isFieldStart(bytes: Bytes, index: number): boolean {
  for (let at = 0; at < bytes.length; at += 2 + bytes[at + 1]!) if (at === index) return true;
  return false;
}

/** The nodes as entries of the given field of a graph or function. */
function nodes(lines: string, model: ModelText, field: number): Bytes {
  let constants = 0;
  const constant = (value: Bytes): [name: string, node: Bytes] => {
    const name = `const_${lines.length}_${constants++}`;
    const attribute = [...text(1, 'value'), ...message(5, value), ...varint(20, 4)];
    return [name, message(field, [...text(2, name), ...text(4, 'Constant'), ...message(5, attribute)])];
  };
  return lines
    .split('\n')
    .map((line) => line.trim())
    .filter((line) => line !== '' && !line.startsWith('#'))
    .flatMap((line) => {
      const match = /^([^=]+)=\s*([\w.]+)(?:<(.*)>)?\((.*)\)$/.exec(line);
      if (!match) throw new Error(`cannot read the line ${line}`);
      const [, outputs = '', operator = '', attributes = '', inputs = ''] = match;
      const before: Bytes = [];
      const input = splitList(inputs).map((each) => {
        const literal = literalTensor(each);
        if (!literal) return each;
        const [name, node] = constant(literal);
        before.push(...node);
        return name;
      });
      const domain = operator.split('.').slice(0, -1).join('.');
      const output = outputs.trim().split(/\s+/);
      const node = [
        ...input.flatMap((name) => text(1, name)),
        ...output.flatMap((name) => text(2, name)),
        ...text(3, `node_${output[0]}`),
        ...text(4, operator.split('.').at(-1) ?? ''),
        ...splitList(attributes).flatMap((each) => message(5, attribute(each, model))),
        ...text(7, domain),
      ];
      return [...before, ...message(field, node)];
    });
}

/** Splits at commas outside of brackets and quotes. An empty text has no parts, an empty part is an empty name. */
function splitList(list: string): string[] {
  return list.trim() === ''
    ? []
    : list.split(/,(?![^[]*\])(?=(?:[^"]*"[^"]*")*[^"]*$)/).map((each) => each.trim());
}

function literalTensor(value: string): Bytes | undefined {
  if (value.startsWith('[')) {
    const numbers = splitList(value.slice(1, -1)).map(BigInt);
    return tensor(7, [numbers.length], BigInt64Array.from(numbers));
  }
  if (/^-?\d+i$/.test(value)) return tensor(7, [], BigInt64Array.of(BigInt(value.slice(0, -1))));
  if (/^-?(\d+\.?\d*(e[+-]?\d+)?|inf)$/.test(value)) {
    return tensor(1, [], Float32Array.of(Number(value.replace('inf', 'Infinity'))));
  }
  return undefined;
}

function attribute(each: string, model: ModelText): Bytes {
  const [name = '', value = ''] = each.split('=').map((part) => part.trim());
  const isFloat = (item: string) => /[.e]|inf/.test(item);
  if (value.startsWith('"')) return [...text(1, name), ...text(4, value.slice(1, -1)), ...varint(20, 3)];
  if (value.startsWith('@')) return [...text(1, name), ...text(21, value.slice(1)), ...varint(20, 1)];
  if (value.startsWith('&')) {
    const body = model.graphs?.[value.slice(1)];
    if (!body) throw new Error(`no graph is named ${value}`);
    return [...text(1, name), ...message(6, graph({ inputs: {}, ...body }, model)), ...varint(20, 5)];
  }
  if (value.startsWith('[')) {
    return [
      ...text(1, name),
      ...splitList(value.slice(1, -1)).flatMap((item) => varint(8, Number(item))),
      ...varint(20, 7),
    ];
  }
  if (isFloat(value))
    return [...text(1, name), tag(2, 5), ...bytesOf(Float32Array.of(Number(value))), ...varint(20, 1)];
  return [...text(1, name), ...varint(3, Number(value)), ...varint(20, 2)];
}

function valueInfo([name, type]: [string, string]): Bytes {
  const [, element = '', dims] = /^(\w+)(?:\[(.*)\])?$/.exec(type) ?? [];
  const elements: Record<string, number> = { f32: 1, i32: 6, i64: 7, bool: 9, f16: 10, bf16: 16 };
  const shape = splitList(dims ?? '').map((dim) => {
    if (dim === '?') return message(1, []);
    return message(1, /^\d+$/.test(dim) ? varint(1, Number(dim)) : text(2, dim));
  });
  const tensorType = [
    ...varint(1, elements[element] ?? 0),
    ...(dims === undefined ? [] : message(2, shape.flat())),
  ];
  return [...text(1, name), ...message(2, message(1, tensorType))];
}

function tensor(type: number, dims: readonly number[], data: ArrayBufferView, name = ''): Bytes {
  return [
    ...dims.flatMap((dim) => varint(1, dim)),
    ...varint(2, type),
    ...text(8, name),
    ...message(9, [...bytesOf(data)]),
  ];
}

function bytesOf(data: ArrayBufferView): Uint8Array {
  return new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
}

function tag(field: number, wire: number): number {
  return (field << 3) | wire;
}

function varint(field: number, value: number): Bytes {
  return [...rawVarint(BigInt(tag(field, 0))), ...rawVarint(BigInt.asUintN(64, BigInt(value)))];
}

function rawVarint(value: bigint): Bytes {
  const bytes: Bytes = [];
  let rest = value;
  for (; rest > 127n; rest >>= 7n) bytes.push(Number(rest & 127n) | 128);
  return [...bytes, Number(rest)];
}

function message(field: number, bytes: Bytes): Bytes {
  return [...rawVarint(BigInt(tag(field, 2))), ...rawVarint(BigInt(bytes.length)), ...bytes];
}

function text(field: number, value: string): Bytes {
  return message(field, [...new TextEncoder().encode(value)]);
}
