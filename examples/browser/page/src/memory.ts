interface MeasuredPerformance extends Performance {
  measureUserAgentSpecificMemory?: () => Promise<{ bytes: number }>;
}

/** Bytes that this page holds, WebAssembly included and GPU memory not, where the browser can tell. */
export async function pageMemory(): Promise<number | undefined> {
  if (!crossOriginIsolated) return undefined;
  try {
    return (await (performance as MeasuredPerformance).measureUserAgentSpecificMemory?.())?.bytes;
  } catch {
    return undefined;
  }
}
