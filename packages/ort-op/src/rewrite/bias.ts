import type { BiasTerm, FoundAttention } from '../find/index.js';
import type { NodeList } from '../model/build.js';
import { DataType, type GraphIndex, isComputed } from '../model/index.js';
import { batchAndHeads } from './operand.js';

/** The lowest float32. */
const lowest = -3.4028234663852886e38;
/** The lowest float16. */
const lowestHalf = -65504;

/** Why the masks and biases of an attention cannot be written as one tensor to add to its scores. */
export function biasObstacle(attention: FoundAttention): string | undefined {
  for (const term of attention.bias) {
    const { type, dims } = term;
    if (!dims || !term.scores) return 'the shape of its mask is unknown';
    if (term.kind === 'add' && !isComputed(type)) return 'its mask is neither float32 nor float16';
    if (term.scores.length === 5 ? !isWindowed(term) : dims.length > 4 || term.scores.length > 4) {
      return `its mask has ${dims.length} axes`;
    }
  }
  return undefined;
}

/** Biases of the attentions of a model. What several layers add is computed for the first of them alone. */
export class Biases {
  private readonly known = new Map<GraphIndex, Map<string, string>>();

  /**
   * Everything added to the scores as one float32 tensor, broadcastable to [batch, heads, query length, key
   * length]; undefined where there is nothing to add.
   */
  valueOf(list: NodeList, attention: FoundAttention): string | undefined {
    const { bias, graph } = attention;
    if (bias.length === 0) return undefined;
    const known = this.known.get(graph) ?? new Map<string, string>();
    this.known.set(graph, known);
    // Scores in three or five axes make a bias depend on the query.
    const shared = bias.every((term) => term.scores?.length === 4);
    const key = JSON.stringify(
      bias.map(({ kind, value, factor, fill }) => [kind, value, factor, String(fill)]),
    );
    const value =
      (shared ? known.get(key) : undefined) ??
      bias
        .map((term) => fourAxes(list, attention, term, additive(list, term)))
        .reduce((sum, each) => list.add('Add', [sum, each]));
    known.set(key, value);
    return value;
  }
}

/**
 * The bias in the element type of the attention, with an element for each query and key, for operators that broadcast
 * it over batch and heads only; and with one for each of `heads`, if that is not 1.
 */
export function forEachQueryAndKey(
  list: NodeList,
  { type }: FoundAttention,
  bias: string,
  [query, key]: readonly [query: string, key: string],
  heads = 1,
): string {
  const shape = list.concat(list.ints(1, heads), list.sizes(query, 2, 3), list.sizes(key, 2, 3));
  // Masked is masked: rows of -Infinity are seen to after.
  return list.add('Expand', [type === DataType.FLOAT16 ? finiteHalves(list, bias) : bias, shape]);
}

/** A float32 bias as float16, for kernels that give rows of -Infinity zeros. */
export function halves(list: NodeList, bias: string): string {
  const minusInfinity = list.float(-Infinity);
  const hidden = list.cast(minusInfinity, DataType.FLOAT, DataType.FLOAT16);
  return list.add('Where', [list.add('Equal', [bias, minusInfinity]), hidden, finiteHalves(list, bias)]);
}

/** A float32 bias as float16 without -Infinity: nothing is left of a score beside the lowest float16. */
function finiteHalves(list: NodeList, bias: string): string {
  return list.cast(list.add('Max', [bias, list.float(lowestHalf)]), DataType.FLOAT, DataType.FLOAT16);
}

function additive(list: NodeList, { kind, value, type, factor, fill }: BiasTerm): string {
  if (kind === 'add') {
    const numbers = list.cast(value, type, DataType.FLOAT);
    return factor === 1 ? numbers : list.add('Mul', [numbers, list.float(factor)]);
  }
  // The model puts a low number in the place of the score. Adding the lowest float32 leaves nothing of the
  // score either, so that a row with every key masked weighs all keys alike, as it does in the model.
  const masked = list.float(fill === -Infinity ? -Infinity : lowest);
  const kept = list.float(0);
  return list.add('Where', kind === 'keep' ? [value, kept, masked] : [value, masked, kept]);
}

/** The bias for scores in four axes, where the model adds it to scores in three or five. */
function fourAxes(list: NodeList, { query }: FoundAttention, term: BiasTerm, value: string): string {
  const dims = term.dims ?? [];
  if (term.scores?.length === 5) {
    // Repeated for each picture: the batch is pictures x windows.
    const [batch] = batchAndHeads(list, query);
    const pictures = list.add('Div', [batch, list.ints(Number(dims[1]))]);
    const repeated = list.add('Expand', [value, list.concat(pictures, list.ints(1, 1, 1, 1))]);
    return list.add('Reshape', [repeated, list.concat(list.ints(-1), list.sizes(value, 2, 5))]);
  }
  if (term.scores?.length !== 3 || dims.length < 3 || dims[0] === 1) return value;
  return list.add('Reshape', [value, list.concat(...batchAndHeads(list, query), list.sizes(value, 1, 3))]);
}

/** Whether scores are seen as [pictures, windows, heads, query, key], with a mask for each window (Swin). */
function isWindowed({ dims, scores }: BiasTerm): boolean {
  return dims?.length === 5 && dims[0] === 1 && typeof dims[1] === 'number' && dims[1] === scores?.[1];
}
