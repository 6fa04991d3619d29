import { MxattnError } from '@mxattn/core';
import { usedValues } from './graph-index.js';
import { mapBodies } from './inline.js';
import { copy } from './messages.js';
import type { GraphProto, NodeProto } from './onnx_pb.js';

/**
 * The graph with each node behind those it depends on, as ONNX demands and not every exporter does. The graph
 * itself if it is in order, bodies included.
 *
 * @throws MxattnError for a value that depends on itself or that two nodes compute.
 */
export function inOrder(graph: GraphProto): GraphProto {
  const nodes = graph.node.map((node) => mapBodies(node, inOrder));
  const makers = new Map<string, NodeProto>();
  for (const node of nodes) {
    for (const output of node.output) {
      if (output === '') continue;
      if (makers.has(output)) throw new MxattnError(`the model is not valid: two nodes compute ${output}`);
      makers.set(output, node);
    }
  }
  const placed = new Set<NodeProto>();
  const sorted: NodeProto[] = [];
  const open = new Set<NodeProto>();
  const pending = nodes.toReversed();
  for (let node = pending.at(-1); node; node = pending.at(-1)) {
    const missing = placed.has(node)
      ? []
      : [...usedValues(node)]
          .flatMap((value) => makers.get(value) ?? [])
          .filter((maker) => !placed.has(maker));
    if (missing.length === 0) {
      pending.pop();
      if (!placed.has(node)) sorted.push(node);
      placed.add(node);
      continue;
    }
    open.add(node);
    const cyclic = missing.find((maker) => open.has(maker));
    if (cyclic) throw new MxattnError(`the model is not valid: ${cyclic.output[0]} depends on itself`);
    pending.push(...missing);
  }
  const unchanged = sorted.every((node, index) => node === graph.node[index]);
  return unchanged ? graph : copy(graph, { node: sorted });
}
