import { attributes, type NodeList } from '../../model/build.js';

/** How an operator rotates its query and key. */
export interface Rotation {
  /** Tables of [positions, half]. */
  readonly cos: string;
  readonly sin: string;
  /** Half the number of channels that are rotated, the first ones. */
  readonly half: number;
  readonly headSize: number;
  /** Neighbours are rotated together, not the channels of the first half with those of the second. */
  readonly interleaved: boolean;
}

/** Rotary embedding of [batch, heads, length, size] by the rows that `positions` pick from the tables. */
export function rotate(list: NodeList, value: string, positions: string, rotation: Rotation): string {
  const { cos, sin, half, headSize, interleaved } = rotation;
  const angle = (table: string) =>
    list.unsqueeze(list.add('Gather', [table, positions], [attributes.int('axis', 0)]), 1);
  const [c, s] = [angle(cos), angle(sin)];
  const pairs = interleaved
    ? list.add('Reshape', [list.slice(value, 3, 0, 2 * half), list.ints(0, 0, 0, half, 2)])
    : value;
  const [a, b] = interleaved
    ? [list.pick(pairs, 4, 0), list.pick(pairs, 4, 1)]
    : [list.slice(value, 3, 0, half), list.slice(value, 3, half, 2 * half)];
  const product = (x: string, y: string) => list.add('Mul', [x, y]);
  const turned = [
    list.add('Sub', [product(a, c), product(b, s)]),
    list.add('Add', [product(b, c), product(a, s)]),
  ];
  const joined = (parts: string[], axis: number) => list.add('Concat', parts, [attributes.int('axis', axis)]);
  const rest = 2 * half < headSize ? [list.slice(value, 3, 2 * half, headSize)] : [];
  if (!interleaved) return joined([...turned, ...rest], 3);
  const woven = joined(
    turned.map((each) => list.unsqueeze(each, 4)),
    4,
  );
  return joined([list.add('Reshape', [woven, list.ints(0, 0, 0, 2 * half)]), ...rest], 3);
}
