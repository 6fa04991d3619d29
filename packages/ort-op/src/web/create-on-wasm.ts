import type { Schedule } from '@mxattn/core';
import type * as Ort from 'onnxruntime-common';
import { readModel } from '../model/index.js';
import { StockSession } from '../session/stock-session.js';
import type { MxattnSession } from '../session/types.js';
import type { WebSessionOptions } from './options.js';
import { openSplit, splitParts } from './split/open.js';
import { WasmSplitAttention } from './split/wasm-attention.js';

/** Opens a model without WebGPU. */
export async function createOnWasm(
  bytes: Uint8Array,
  plan: Schedule,
  { ort, backend = 'auto', crossAttention = false }: WebSessionOptions,
  stock: Ort.InferenceSession.SessionOptions,
): Promise<MxattnSession> {
  const create = (model: Uint8Array) =>
    ort.InferenceSession.create(model, { ...stock, executionProviders: ['wasm'] });
  if (backend !== 'stock') {
    const parts = splitParts(create, new WasmSplitAttention(ort), plan, stock);
    const opened = await openSplit(readModel(bytes), crossAttention, parts);
    if (opened) return opened;
  }
  const reason = backend === 'stock' ? {} : { reason: 'no attention to replace' };
  return new StockSession(await create(bytes), { backend: 'stock', ...reason, replaced: [], left: [] });
}
