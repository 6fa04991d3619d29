import type { InferenceSession } from 'onnxruntime-common';

/** Longest time in ms that runs, one after another, keep the page from being painted. */
const PATIENCE = 50;

/** Lets the page be painted between runs: on WebAssembly they would occupy its thread until the last one. */
export function pauseAfterRuns(sessions: { create: typeof InferenceSession.create }): void {
  const original = sessions.create;
  let last = 0;
  const create = async (...args: unknown[]): Promise<InferenceSession> => {
    const session = await (original as (...args: unknown[]) => Promise<InferenceSession>).apply(
      sessions,
      args,
    );
    const run = session.run.bind(session) as (...args: unknown[]) => Promise<InferenceSession.ReturnType>;
    const paused = async (...args: unknown[]) => {
      const outputs = await run(...args);
      if (performance.now() - last > PATIENCE) {
        await new Promise((resolve) => setTimeout(resolve));
        last = performance.now();
      }
      return outputs;
    };
    return Object.assign(session, { run: paused });
  };
  sessions.create = create as typeof InferenceSession.create;
}
