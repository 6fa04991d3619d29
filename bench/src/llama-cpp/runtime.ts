import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { storyLlamaAsGguf } from './story-llama.js';

/** Element types of llama.cpp's caches that its flash attention reads. */
export type LlamaCache = 'F16' | 'Q8_0' | 'Q4_0';

/** llama.cpp with a model and a cache of one format. */
export interface LlamaCpp {
  /** When each of `count` greedy tokens behind a prompt comes, in milliseconds from the call, and which they are. */
  generate(prompt: readonly number[], count: number): Promise<{ times: number[]; tokens: number[] }>;
  dispose(): Promise<void>;
}

/** The part of the package node-llama-cpp that is used. */
interface Package {
  getLlama(options: object): Promise<{
    loadModel(options: object): Promise<{
      createContext(options: object): Promise<{
        getSequence(): {
          clearHistory(): Promise<void>;
          evaluate(tokens: readonly number[], options: object): AsyncIterable<number>;
        };
        dispose(): Promise<void>;
      }>;
      dispose(): Promise<void>;
    }>;
    dispose(): Promise<void>;
  }>;
}

/**
 * Opens story-llama in llama.cpp, with its flash attention and float32 weights.
 *
 * The package is large and not installed with the others: `npm install --ignore-scripts node-llama-cpp` in a folder that
 * MXATTN_NODE_LLAMA_CPP names.
 *
 * @returns A function that opens a cache format, or why there is none.
 */
export async function openLlamaCpp(
  modelFolder: string,
  threads: number,
): Promise<{ open: (cache: LlamaCache) => Promise<LlamaCpp>; close: () => Promise<void> } | string> {
  const folder = process.env.MXATTN_NODE_LLAMA_CPP;
  if (!folder) return 'MXATTN_NODE_LLAMA_CPP does not name a folder in which node-llama-cpp is installed';
  const path = createRequire(join(folder, 'package.json')).resolve('node-llama-cpp');
  const { getLlama } = (await import(pathToFileURL(path).href)) as Package;
  const target = mkdtempSync(join(tmpdir(), 'mxattn-gguf-'));
  const modelPath = join(target, 'story-llama.gguf');
  writeFileSync(modelPath, storyLlamaAsGguf(modelFolder));
  const llama = await getLlama({ gpu: false, build: 'never', maxThreads: threads, logLevel: 'error' });
  const model = await llama.loadModel({ modelPath });
  rmSync(target, { recursive: true });
  return {
    async open(cache) {
      const context = await model.createContext({
        contextSize: 2048,
        batchSize: 2048,
        threads,
        flashAttention: true,
        experimentalKvCacheKeyType: cache,
        experimentalKvCacheValueType: cache,
      });
      const sequence = context.getSequence();
      return {
        async generate(prompt, count) {
          await sequence.clearHistory();
          const times: number[] = [];
          const tokens: number[] = [];
          const start = performance.now();
          for await (const token of sequence.evaluate(prompt, { temperature: 0 })) {
            times.push(performance.now() - start);
            tokens.push(token);
            if (tokens.length === count) break;
          }
          return { times, tokens };
        },
        dispose: () => context.dispose(),
      };
    },
    async close() {
      await model.dispose();
      await llama.dispose();
    },
  };
}
