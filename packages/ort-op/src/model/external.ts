import { bodies } from './attributes.js';
import { type GraphProto, type ModelProto, TensorProto_DataLocation } from './onnx_pb.js';

/** The files that hold a model's weights, as paths relative to its folder. */
export function externalFiles(model: ModelProto): string[] {
  const files = new Set<string>();
  const visit = (graph: GraphProto) => {
    const inNodes = graph.node.flatMap((node) =>
      node.attribute.flatMap(({ t, tensors }) => (t ? [t] : tensors)),
    );
    for (const tensor of [...graph.initializer, ...inNodes]) {
      if (tensor.dataLocation !== TensorProto_DataLocation.EXTERNAL) continue;
      const location = tensor.externalData.find(({ key }) => key === 'location')?.value;
      if (location) files.add(location);
    }
    graph.node.flatMap(bodies).forEach(visit);
  };
  if (model.graph) visit(model.graph);
  return [...files];
}
