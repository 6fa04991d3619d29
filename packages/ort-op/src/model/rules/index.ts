import { DataType } from '../element-types.js';
import type { Rule } from '../facts.js';
import { product } from '../symbols.js';
import {
  attention,
  embedLayerNormalization,
  groupQueryAttention,
  multiHeadAttention,
  skipNormalization,
} from './attention.js';
import { constant, constantOfShape, range } from './constants.js';
import { binary, cast, sameAsFirst, unary, where } from './elementwise.js';
import {
  concat,
  expand,
  flatten,
  gather,
  reshape,
  shape,
  slice,
  split,
  squeeze,
  tile,
  transpose,
  unsqueeze,
} from './layout.js';
import {
  convolution,
  dynamicQuantize,
  einsum,
  fusedMatMul,
  gemm,
  matMulDims,
  matMulNBits,
  reduce,
} from './products.js';

/** Shape, element type and small-constant inference, by operator. */
export const rules: ReadonlyMap<string, Rule> = new Map<string, Rule>([
  ...each(
    'Abs Ceil Celu Clip Cos CumSum Dropout Elu Erf Exp Floor Gelu HardSigmoid HardSwish Identity LayerNormalization',
    'LeakyRelu Log LogSoftmax Mish PRelu QuickGelu FastGelu BiasGelu RMSNormalization Relu Round RotaryEmbedding',
    'Selu Sigmoid Sign SimplifiedLayerNormalization Sin',
    'Softmax Softplus Swish Tanh Trilu InstanceNormalization GroupNormalization BatchNormalization ScatterND',
  )(sameAsFirst),
  ...each('Neg Sqrt Reciprocal')(unary),
  ...each('Add Sub Mul Div Pow Max Min Mod BitwiseAnd BitwiseOr')((at) => binary(at, at.input(0).type)),
  ...each('And Or Xor Equal Greater GreaterOrEqual Less LessOrEqual')((at) => binary(at, DataType.BOOL)),
  ...each('IsNaN IsInf Not')((at) => ({ type: DataType.BOOL, dims: at.input(0).dims })),
  ...each('ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceL2 ReduceSumSquare')(reduce),
  ...each('Attention FusedAttention')(attention),
  ['GroupQueryAttention', groupQueryAttention],
  ['MultiHeadAttention', multiHeadAttention],
  ...each('SkipLayerNormalization SkipSimplifiedLayerNormalization')(skipNormalization),
  ['Cast', cast],
  ['CastLike', (at) => ({ type: at.input(1).type, dims: at.input(0).dims })],
  ['Concat', concat],
  ['Constant', constant],
  ['ConstantOfShape', constantOfShape],
  ['Conv', convolution],
  ['DequantizeLinear', (at) => ({ type: at.input(1).type, dims: at.input(0).dims })],
  ['DynamicQuantizeLinear', dynamicQuantize],
  ['Einsum', einsum],
  ['EmbedLayerNormalization', embedLayerNormalization],
  ['Expand', expand],
  ['Flatten', flatten],
  ['FusedMatMul', fusedMatMul],
  ['Gather', gather],
  ['GatherElements', (at) => ({ type: at.input(0).type, dims: at.input(1).dims })],
  ['Gemm', gemm],
  ['MatMul', (at) => ({ type: at.input(0).type, dims: matMulDims(at.input(0).dims, at.input(1).dims) })],
  ['MatMulInteger', (at) => ({ type: DataType.INT32, dims: matMulDims(at.input(0).dims, at.input(1).dims) })],
  ['MatMulNBits', matMulNBits],
  ['QuantizeLinear', (at) => ({ type: at.input(2).type ?? DataType.UINT8, dims: at.input(0).dims })],
  ['Range', range],
  ['Reshape', reshape],
  ['Shape', shape],
  [
    'Size',
    (at) => ({ type: DataType.INT64, dims: [], values: at.input(0).dims && [product(at.input(0).dims!)] }),
  ],
  ['Slice', slice],
  ['Split', split],
  ['Squeeze', squeeze],
  ['Tile', tile],
  ['Transpose', transpose],
  ['Unsqueeze', unsqueeze],
  ['Where', where],
]);

function each(...names: string[]): (rule: Rule) => [string, Rule][] {
  return (rule) => names.flatMap((line) => line.split(' ')).map((name) => [name, rule]);
}
