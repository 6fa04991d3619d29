import { MxattnError } from '@mxattn/core';

/** The result of work on a model in ONNX Runtime, whose own errors become errors about that file. */
export async function running<T>(path: string, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    if (error instanceof MxattnError) throw error;
    throw new MxattnError(`${path} does not run: ${(error as Error).message.split('\n')[0]}`);
  }
}
