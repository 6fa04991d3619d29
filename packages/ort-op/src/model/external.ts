import { MxattnError } from '@mxattn/core';
import { bodies } from './attributes.js';
import { copy } from './messages.js';
import { type GraphProto, type ModelProto, type TensorProto, TensorProto_DataLocation } from './onnx_pb.js';

/** The files that hold a model's weights, as paths relative to its folder. */
export function externalFiles(model: ModelProto): string[] {
  const files = new Set<string>();
  const visit = (graph: GraphProto) => {
    const inNodes = graph.node.flatMap((node) =>
      node.attribute.flatMap(({ t, tensors }) => (t ? [t] : tensors)),
    );
    for (const tensor of [...graph.initializer, ...inNodes]) {
      const location = entryOf(tensor, 'location');
      if (isExternal(tensor) && location) files.add(location);
    }
    graph.node.flatMap(bodies).forEach(visit);
  };
  if (model.graph) visit(model.graph);
  return [...files];
}

/**
 * The model with the initializers of its main graph that lie in these files made part of it, as views of the files' bytes.
 *
 * @param files Contents by path relative to the model's folder.
 * @throws MxattnError naming a tensor that goes beyond the end of its file.
 */
export function withExternalData(model: ModelProto, files: ReadonlyMap<string, Uint8Array>): ModelProto {
  const { graph } = model;
  if (!graph) return model;
  const initializer = graph.initializer.map((tensor) => {
    const file = isExternal(tensor) ? files.get(entryOf(tensor, 'location') ?? '') : undefined;
    if (!file) return tensor;
    const offset = Number(entryOf(tensor, 'offset') ?? 0);
    const length = Number(entryOf(tensor, 'length') ?? file.byteLength - offset);
    if (offset + length > file.byteLength) {
      throw new MxattnError(
        `tensor "${tensor.name}" is at ${offset} to ${offset + length} of "${entryOf(tensor, 'location')}", which has ${file.byteLength} bytes`,
      );
    }
    const rawData = file.subarray(offset, offset + length);
    return copy(tensor, { rawData, externalData: [], dataLocation: TensorProto_DataLocation.DEFAULT });
  });
  return copy(model, { graph: copy(graph, { initializer }) });
}

function isExternal(tensor: TensorProto): boolean {
  return tensor.dataLocation === TensorProto_DataLocation.EXTERNAL;
}

function entryOf(tensor: TensorProto, wanted: string): string | undefined {
  return tensor.externalData.find(({ key }) => key === wanted)?.value;
}
