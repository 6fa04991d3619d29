import type { NodeList } from '../model/build.js';
import { intAttribute, type NodeProto } from '../model/index.js';

/** Gives the output of a Shape node from sizes that were computed in another way: all of them, or those it asks for. */
export function instead(list: NodeList, reader: NodeProto, shape: string): void {
  const start = list.ints(intAttribute(reader, 'start', 0));
  const end = list.ints(intAttribute(reader, 'end', Number.MAX_SAFE_INTEGER));
  list.add('Slice', [shape, start, end], [], reader.output[0]);
}
