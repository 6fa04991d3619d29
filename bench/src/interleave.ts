/**
 * Times two ways to do the same work by turns, so that other load on the machine meets both alike.
 *
 * @returns Median times in milliseconds.
 */
export async function interleaved(
  ours: () => Promise<unknown>,
  peer: () => Promise<unknown>,
  rounds: number,
  onRound: (done: number) => void,
): Promise<{ ours: number; peer: number }> {
  const times: { ours: number[]; peer: number[] } = { ours: [], peer: [] };
  await ours();
  await peer();
  for (let round = 0; round < rounds; round++) {
    times.ours.push(await time(ours));
    times.peer.push(await time(peer));
    onRound(round + 1);
  }
  return { ours: median(times.ours), peer: median(times.peer) };
}

async function time(task: () => Promise<unknown>): Promise<number> {
  const start = performance.now();
  await task();
  return performance.now() - start;
}

export function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.floor(sorted.length / 2)]!;
}
