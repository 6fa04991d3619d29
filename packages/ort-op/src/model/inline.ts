import { bodies } from './attributes.js';
import { defaultDomain } from './graph-index.js';
import { copy } from './messages.js';
import type { AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto } from './onnx_pb.js';

/** Functions cannot call themselves, so no valid model nests them deeper than this. */
const deepestNesting = 64;

/** Says of a function, given all nodes of its body, whether to inline it. */
type Wanted = (callee: FunctionProto, nodes: readonly NodeProto[]) => boolean;

/**
 * The model with each call of some of its functions replaced by the nodes of the function: of those for which
 * `wanted` holds, or that call such a one. The model itself if there are none.
 */
export function inlineFunctions(model: ModelProto, wanted: Wanted): ModelProto {
  const inlined = functionsToInline(model, wanted);
  if (inlined.size === 0 || !model.graph) return model;
  const imported = new Set(model.opsetImport.map((each) => defaultDomain(each.domain)));
  const missing = [...inlined.values()]
    .flatMap((each) => each.opsetImport)
    .filter(({ domain }) => !imported.has(defaultDomain(domain)) && imported.add(defaultDomain(domain)));
  return copy(model, {
    graph: inlineInGraph(model.graph, inlined, 0),
    functions: model.functions.filter((each) => !inlined.has(keyOf(each.domain, each.name, each.overload))),
    opsetImport: [...model.opsetImport, ...missing],
  });
}

function functionsToInline(model: ModelProto, wanted: Wanted) {
  const inlined = new Map<string, FunctionProto>();
  const calls = (each: FunctionProto) =>
    allNodes(each.node).some((node) => inlined.has(keyOf(node.domain, node.opType, node.overload)));
  for (let before = -1; before !== inlined.size; ) {
    before = inlined.size;
    for (const each of model.functions) {
      const key = keyOf(each.domain, each.name, each.overload);
      if (!inlined.has(key) && (wanted(each, allNodes(each.node)) || calls(each))) inlined.set(key, each);
    }
  }
  return inlined;
}

function allNodes(nodes: readonly NodeProto[]): NodeProto[] {
  return nodes.flatMap((node) => [node, ...bodies(node).flatMap((body) => allNodes(body.node))]);
}

function keyOf(domain: string, name: string, overload: string): string {
  return `${defaultDomain(domain)}.${name}.${overload}`;
}

function inlineInGraph(
  graph: GraphProto,
  inlined: ReadonlyMap<string, FunctionProto>,
  depth: number,
): GraphProto {
  return copy(graph, { node: graph.node.flatMap((node) => inlineNode(node, inlined, depth)) });
}

function inlineNode(
  node: NodeProto,
  inlined: ReadonlyMap<string, FunctionProto>,
  depth: number,
): NodeProto[] {
  const callee = inlined.get(keyOf(node.domain, node.opType, node.overload));
  if (callee && depth < deepestNesting) {
    return callBody(node, callee).flatMap((each) => inlineNode(each, inlined, depth + 1));
  }
  if (bodies(node).length === 0) return [node];
  return [mapBodies(node, (body) => inlineInGraph(body, inlined, depth))];
}

/** The nodes of a function as one call of it needs them. */
function callBody(call: NodeProto, callee: FunctionProto): NodeProto[] {
  const prefix = `${call.output.find((output) => output !== '') ?? call.name}/`;
  const names = new Map<string, string>([['', '']]);
  callee.input.forEach((input, index) => {
    names.set(input, call.input[index] ?? '');
  });
  callee.output.forEach((output, index) => {
    names.set(output, call.output[index] || `${prefix}${output}`);
  });
  const given = new Map([...callee.attributeProto, ...call.attribute].map((each) => [each.name, each]));
  return callee.node.map((node) =>
    bind(node, (name) => names.get(name) ?? `${prefix}${name}`, prefix, given),
  );
}

/** A node with its values renamed and the attributes of the call in place of the function's parameters. */
function bind(
  node: NodeProto,
  rename: (name: string) => string,
  prefix: string,
  given: ReadonlyMap<string, AttributeProto>,
): NodeProto {
  const bound = copy(node, {
    name: node.name === '' ? '' : `${prefix}${node.name}`,
    input: node.input.map(rename),
    output: node.output.map(rename),
    attribute: node.attribute.flatMap((attribute) => {
      if (attribute.refAttrName === '') return [attribute];
      const value = given.get(attribute.refAttrName);
      return value ? [copy(value, { name: attribute.name })] : [];
    }),
  });
  return mapBodies(bound, (body) =>
    copy(body, {
      node: body.node.map((inner) => bind(inner, rename, prefix, given)),
      input: body.input.map((each) => copy(each, { name: rename(each.name) })),
      output: body.output.map((each) => copy(each, { name: rename(each.name) })),
      initializer: body.initializer.map((each) => copy(each, { name: rename(each.name) })),
      valueInfo: body.valueInfo.map((each) => copy(each, { name: rename(each.name) })),
    }),
  );
}

/** A node with each of its bodies replaced; the node itself where they are replaced by themselves. */
export function mapBodies(node: NodeProto, change: (body: GraphProto) => GraphProto): NodeProto {
  const before = bodies(node);
  const after = new Map(before.map((body) => [body, change(body)]));
  if (before.every((body) => after.get(body) === body)) return node;
  return copy(node, {
    attribute: node.attribute.map((attribute) => {
      const { g, graphs } = attribute;
      if (!g && graphs.length === 0) return attribute;
      const changed = graphs.map((body) => after.get(body) ?? body);
      return copy(attribute, { graphs: changed, ...(g ? { g: after.get(g) } : {}) });
    }),
  });
}
