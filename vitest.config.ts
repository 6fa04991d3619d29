import { availableParallelism } from 'node:os';
import { defineConfig } from 'vitest/config';

export default defineConfig({
  test: {
    include: ['test/**/*.test.ts', 'packages/*/src/**/*.test.ts'],
    testTimeout: 120_000,
    hookTimeout: 120_000,
    // On two processors the default is one worker, which mostly waits for one thread.
    maxWorkers: Math.max(2, availableParallelism() - 1),
  },
});
