import { once } from 'node:events';
import { availableParallelism } from 'node:os';
import { Worker } from 'node:worker_threads';
import type { Job, JobResult } from './experiment.js';

/** Runs jobs on all cores; results come in the order of the jobs. */
export async function runJobs(jobs: readonly Job[], onDone: () => void): Promise<JobResult[]> {
  const results = new Array<JobResult>(jobs.length);
  let next = 0;
  async function drain(worker: Worker): Promise<void> {
    while (next < jobs.length) {
      const index = next++;
      worker.postMessage(jobs[index]);
      // Rejects if the worker fails.
      const [result] = (await once(worker, 'message')) as [JobResult];
      results[index] = result;
      onDone();
    }
  }
  const workers = Array.from(
    { length: Math.min(availableParallelism(), jobs.length) },
    () => new Worker(new URL('./worker.js', import.meta.url)),
  );
  try {
    await Promise.all(workers.map(drain));
  } finally {
    await Promise.all(workers.map((worker) => worker.terminate()));
  }
  return results;
}
