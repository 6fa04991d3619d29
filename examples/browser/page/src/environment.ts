/** What the browser offers. */
export interface Environment {
  readonly device: 'webgpu' | 'wasm';
  /** For the visitor. */
  readonly description: string;
}

/** Looks for a WebGPU adapter; `?device=wasm` does without. */
export async function findEnvironment(): Promise<Environment> {
  const missing = await obstacle();
  if (typeof missing === 'string') {
    return {
      device: 'wasm',
      description:
        `${missing} Models run on WebAssembly, cut at their attentions, with mxattn's WebAssembly kernel between the parts; ` +
        'it has f32, mxfp6 and mxfp4.',
    };
  }
  const { vendor, architecture, description } = missing;
  const name = description || [vendor, architecture].filter(Boolean).join(' ') || 'unnamed adapter';
  return { device: 'webgpu', description: `WebGPU: ${name}. Attention can run in place.` };
}

async function obstacle(): Promise<string | GPUAdapterInfo> {
  if (new URLSearchParams(location.search).get('device') === 'wasm')
    return 'WebGPU is turned off by the address.';
  if (!navigator.gpu) return 'This browser has no WebGPU.';
  const adapter = await navigator.gpu.requestAdapter();
  return adapter?.info ?? 'WebGPU has no adapter here.';
}
