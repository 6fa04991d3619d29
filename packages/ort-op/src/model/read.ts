import { fromBinary, toBinary } from '@bufbuild/protobuf';
import { MxattnError } from '@mxattn/core';
import { type ModelProto, ModelProtoSchema } from './onnx_pb.js';

/** A model as a file path or as the bytes of such a file. */
export type ModelSource = string | Uint8Array;

/**
 * Reads an ONNX model. Weights stay where they are: tensors hold views of the bytes read, and data in
 * external files is not touched. Fields of newer ONNX versions are kept and written back.
 *
 * @throws MxattnError naming the file when it cannot be read or is not an ONNX model.
 */
export function readModel(source: ModelSource): ModelProto {
  const name = typeof source === 'string' ? source : 'the model';
  const bytes = typeof source === 'string' ? readBytes(source) : source;
  const refuse = (why: string) => new MxattnError(`${name} is not an ONNX model: ${why}`);
  if (bytes.byteLength === 0) throw refuse('the file is empty');
  let model: ModelProto;
  try {
    model = fromBinary(ModelProtoSchema, bytes);
  } catch (error) {
    const detail = error instanceof Error ? error.message : String(error);
    const truncated = /premature EOF/.test(detail);
    throw refuse(
      truncated ? 'it ends in the middle of a field (truncated?)' : `its bytes do not parse (${detail})`,
    );
  }
  if (!model.graph) throw refuse('it holds no graph');
  if (model.opsetImport.length === 0) throw refuse('it imports no operator set (truncated?)');
  return model;
}

/** The bytes of a model, with everything {@link readModel} found in it. */
export function writeModel(model: ModelProto): Uint8Array {
  return toBinary(ModelProtoSchema, model);
}

function readBytes(path: string): Uint8Array {
  // Asked for at run time, so that bundles for browsers need no substitute for it.
  const fs = globalThis.process?.getBuiltinModule?.('node:fs');
  if (!fs) throw new MxattnError(`cannot read the model ${path}: only Node.js reads files, pass its bytes`);
  try {
    return fs.readFileSync(path);
  } catch (error) {
    const code = error instanceof Error && 'code' in error ? String(error.code) : String(error);
    throw new MxattnError(`cannot read the model ${path}: ${code === 'ENOENT' ? 'no such file' : code}`);
  }
}
