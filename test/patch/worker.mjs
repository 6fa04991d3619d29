// A worker thread that generates a text, patched if it is given a precision.
import { parentPort, workerData } from 'node:worker_threads';
import { env, pipeline } from '@huggingface/transformers';
import { patch, patchReport } from '@mxattn/transformers-patch';

env.allowRemoteModels = false;
env.localModelPath = workerData.folder;
if (workerData.precision) patch({ precision: workerData.precision, backend: 'native' });
const generate = await pipeline('text-generation', 'gpt2', { dtype: 'fp32' });
const [{ generated_text }] = await generate('the king', { max_new_tokens: 8, do_sample: false });
parentPort.postMessage({ text: generated_text, replaced: patchReport()[0]?.replaced.length ?? 0 });
