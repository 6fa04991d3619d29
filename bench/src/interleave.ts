/**
 * Times two ways to do the same work by turns, so that other load on the machine meets both alike.
 *
 * @param inTurn runs in a row, of which the first is not counted if there are more: each finds its data in the processor's
 * caches then, as in a loop, and no threads of the other still waiting for work.
 * @returns Median times in milliseconds.
 */
export async function interleaved(
  ours: () => Promise<unknown>,
  peer: () => Promise<unknown>,
  rounds: number,
  onRound: (done: number) => void,
  inTurn = 1,
): Promise<{ ours: number; peer: number }> {
  const times: { ours: number[]; peer: number[] } = { ours: [], peer: [] };
  await ours();
  await peer();
  for (let round = 0; round < rounds; round++) {
    times.ours.push(...(await turn(ours, inTurn)));
    times.peer.push(...(await turn(peer, inTurn)));
    onRound(round + 1);
  }
  return { ours: median(times.ours), peer: median(times.peer) };
}

async function turn(task: () => Promise<unknown>, runs: number): Promise<number[]> {
  const times: number[] = [];
  for (let run = 0; run < runs; run++) times.push(await time(task));
  return runs > 1 ? times.slice(1) : times;
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
