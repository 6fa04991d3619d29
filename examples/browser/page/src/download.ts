/**
 * Fetches a file.
 *
 * @param onPart Called with the part that has arrived, 0 to 1.
 */
export async function download(
  url: string,
  onPart: (part: number) => void,
): Promise<Uint8Array<ArrayBuffer>> {
  const response = await fetch(url);
  if (!response.ok || !response.body) throw new Error(`cannot fetch ${url}: status ${response.status}`);
  const total = Number(response.headers.get('content-length'));
  const parts: Uint8Array<ArrayBuffer>[] = [];
  let arrived = 0;
  for (const reader = response.body.getReader(); ; ) {
    const { done, value } = await reader.read();
    if (done) break;
    parts.push(value);
    arrived += value.length;
    if (total > 0) onPart(Math.min(1, arrived / total));
  }
  onPart(1);
  return new Uint8Array(await new Blob(parts).arrayBuffer());
}
