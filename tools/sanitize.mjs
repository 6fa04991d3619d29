// Runs the conformance table and the session tests with the native addon built under AddressSanitizer and
// UndefinedBehaviorSanitizer, then builds it as usual again. Linux with g++. `npm run sanitize`
import { execFileSync, spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = join(dirname(fileURLToPath(import.meta.url)), '..');
const ortOp = join(root, 'packages', 'ort-op');
const flags = '-fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer -g';

const prefix = join(dirname(process.execPath), '..');
const headers = existsSync(join(prefix, 'include', 'node', 'node_api.h')) ? [`--nodedir=${prefix}`] : [];

function rebuild(extra) {
  const { status } = spawnSync('npx', ['node-gyp', 'rebuild', ...headers], {
    cwd: ortOp,
    stdio: ['ignore', 'ignore', 'inherit'],
    env: { ...process.env, CXXFLAGS: extra, LDFLAGS: extra },
  });
  if (status !== 0) throw new Error('the addon did not build');
}

const library = (name) => execFileSync('g++', [`-print-file-name=${name}`], { encoding: 'utf8' }).trim();

let status = 1;
try {
  rebuild(flags);
  const tests = [
    'test/conformance/conformance.test.ts',
    'test/session/kv-cache.test.ts',
    'test/session/native-tensors.test.ts',
    'test/session/session.test.ts',
  ];
  ({ status } = spawnSync(
    process.execPath,
    [join(root, 'node_modules', 'vitest', 'vitest.mjs'), 'run', ...tests],
    {
      cwd: root,
      stdio: 'inherit',
      env: {
        ...process.env,
        LD_PRELOAD: `${library('libasan.so')} ${library('libubsan.so')}`,
        // Node itself leaves memory to the end of the process.
        ASAN_OPTIONS: 'detect_leaks=0',
        UBSAN_OPTIONS: 'print_stacktrace=1',
      },
    },
  ));
} finally {
  rebuild('');
}
process.exit(status);
