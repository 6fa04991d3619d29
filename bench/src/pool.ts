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
      results[index] = await new Promise<JobResult>((resolve, reject) => {
        worker.once('message', resolve);
        worker.once('error', reject);
        worker.postMessage(jobs[index]);
      });
      worker.removeAllListeners();
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
