import { floatAttribute, intAttribute, intsAttribute, tensorAttribute } from '../attributes.js';
import { DataType } from '../element-types.js';
import { type Fact, type NodeFacts, nothing } from '../facts.js';
import { freshSymbol, product } from '../symbols.js';
import { smallTensor, smallTensorLimit } from '../tensors.js';
import { sizesFrom } from './axes.js';

export function constant(at: NodeFacts): Fact {
  const { node } = at;
  const tensor = tensorAttribute(node, 'value');
  if (tensor) return smallTensor(tensor) ?? { type: tensor.dataType, dims: tensor.dims.map(Number) };
  const float = floatAttribute(node, 'value_float', undefined);
  if (float !== undefined) return { type: DataType.FLOAT, dims: [], values: [float] };
  const int = intAttribute(node, 'value_int', undefined);
  if (int !== undefined) return { type: DataType.INT64, dims: [], values: [int] };
  const ints = intsAttribute(node, 'value_ints');
  if (ints) return { type: DataType.INT64, dims: [ints.length], values: ints };
  const floats = node.attribute.find((attribute) => attribute.name === 'value_floats')?.floats;
  return floats ? { type: DataType.FLOAT, dims: [floats.length], values: floats } : nothing;
}

export function constantOfShape(at: NodeFacts): Fact {
  const tensor = tensorAttribute(at.node, 'value');
  const type: DataType = tensor ? tensor.dataType : DataType.FLOAT;
  const dims = sizesFrom(at.input(0));
  const fill = tensor ? smallTensor(tensor)?.values[0] : 0;
  const count = dims && product(dims);
  const small = typeof count === 'number' && count <= smallTensorLimit && fill !== undefined;
  return { type, dims, values: small ? Array<number>(count).fill(fill) : undefined };
}

export function range(at: NodeFacts): Fact {
  const [start, limit, step] = [at.input(0).values?.[0], at.input(1).values?.[0], at.input(2).values?.[0]];
  const { type } = at.input(0);
  if (start === 0 && step === 1 && typeof limit === 'string') return { type, dims: [limit] };
  if (typeof start !== 'number' || typeof limit !== 'number' || typeof step !== 'number' || step === 0) {
    return { type, dims: [freshSymbol()] };
  }
  const count = Math.max(0, Math.ceil((limit - start) / step));
  const small = count <= smallTensorLimit;
  return {
    type,
    dims: [count],
    values: small ? Array.from({ length: count }, (_, index) => start + index * step) : undefined,
  };
}
