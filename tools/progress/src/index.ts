import { progress as bar, log } from '@clack/prompts';

/** Runs a task of `total` steps, showing how far it is. */
export type Progress = <T>(
  title: string,
  total: number,
  task: (step: (done: number) => void) => Promise<T>,
) => Promise<T>;

/** Progress bars in a terminal; elsewhere a line when a task is done. */
export const terminalProgress: Progress = async (title, total, task) => {
  const start = performance.now();
  const seconds = () => `${((performance.now() - start) / 1000).toFixed(1)} s`;
  if (!process.stdout.isTTY) {
    const result = await task(() => {});
    log.step(`${title}: ${total} of ${total}, ${seconds()}`);
    return result;
  }
  const shown = bar({ max: total });
  shown.start(title);
  let last = 0;
  try {
    const result = await task((done) => {
      shown.advance(done - last, `${title}: ${done} of ${total}`);
      last = done;
    });
    shown.stop(`${title}: ${seconds()}`);
    return result;
  } catch (error) {
    shown.error(title);
    throw error;
  }
};
