import { spawnSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';

const DEMO = fileURLToPath(new URL('../../examples/demo/dist/main.js', import.meta.url));

describe('npm run demo', () => {
  it.each([
    [['--image', 'red zebraphant'], /^demo: the image model does not know the word "zebraphant"/],
    [['--precision', 'int1'], /^demo: unknown precision "int1"; known: f32/],
    [
      ['--models', 'nowhere'],
      /^demo: the language model nowhere\/story-llama\/onnx\/model\.onnx does not exist/,
    ],
    [['--tokens', 'many'], /^demo: --tokens is "many"/],
    [['--colour'], /^demo: Unknown option '--colour'/],
  ])('%j is one line and exit code 2', (args, message) => {
    const { status, stderr } = spawnSync(process.execPath, [DEMO, ...args], { encoding: 'utf8' });
    expect(stderr).toMatch(message);
    expect(stderr.trim().split('\n')).toHaveLength(1);
    expect(status).toBe(2);
  });
});
