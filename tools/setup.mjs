// Everything `npm run demo` and `npm test` need before they start: dependencies, generated code, TypeScript, the
// WebAssembly kernel, the WGSL, the native addon. Does only what is missing or out of date, and says what it skips.
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const PNPM = 'pnpm@12.21.0';
const root = join(dirname(fileURLToPath(import.meta.url)), '..');
const ortOp = join(root, 'packages', 'ort-op');

const [major, minor] = process.versions.node.split('.').map(Number);
if (major < 20 || (major === 20 && minor < 17)) {
  fail(`Node.js ${process.versions.node} is too old; 20.17 or newer is needed`);
}

installDependencies();
if (newer(join(ortOp, 'proto', 'onnx.proto'), join(ortOp, 'src', 'model', 'onnx_pb.ts'))) {
  step('generating the protobuf reader', ['buf', 'generate'], ortOp);
}
buildWasm();
embedWgsl();
step('compiling TypeScript', ['tsc', '--build'], root);
buildAddon();

function installDependencies() {
  // The stamp holds the lockfile's hash: a changed or interrupted installation is done again.
  const stamp = join(root, 'node_modules', '.mxattn-installed');
  const lockfile = createHash('sha256')
    .update(readFileSync(join(root, 'pnpm-lock.yaml')))
    .digest('hex');
  if (existsSync(stamp) && readFileSync(stamp, 'utf8') === lockfile) return;
  // No install scripts: onnxruntime-node's would download CUDA libraries.
  step('installing dependencies', ['--yes', PNPM, 'install', '--frozen-lockfile', '--ignore-scripts'], root);
  writeFileSync(stamp, lockfile);
}

function buildWasm() {
  const build = join(root, 'packages', 'core', 'wasm', 'build.mjs');
  const { status } = spawnSync(process.execPath, [build], { stdio: 'inherit' });
  if (status !== 0) fail('compiling the WebAssembly kernel failed');
}

function embedWgsl() {
  const build = join(ortOp, 'src', 'webgpu', 'wgsl', 'build.mjs');
  const { status } = spawnSync(process.execPath, [build], { stdio: 'inherit' });
  if (status !== 0) fail('embedding the WGSL failed');
}

function buildAddon() {
  const built =
    existsSync(join(ortOp, 'build', 'Makefile')) || existsSync(join(ortOp, 'build', 'binding.sln'));
  // Node's own headers where the installation has them, so that none are downloaded.
  const prefix = join(dirname(process.execPath), '..');
  const headers = existsSync(join(prefix, 'include', 'node', 'node_api.h')) ? [`--nodedir=${prefix}`] : [];
  const { status, stderr } = npx(['node-gyp', built ? 'build' : 'rebuild', ...headers], ortOp, 'pipe');
  if (status === 0) return;
  const log = String(stderr)
    .split('\n')
    .filter((line) => /error|not found|ERR! stack/i.test(line));
  console.error(
    `skipped: the native addon did not build, so the CPU kernel is missing. Is a C++ compiler (g++ 12 or clang) with make ` +
      `installed?\n${log.slice(0, 10).join('\n')}`,
  );
}

function newer(source, target) {
  return !existsSync(target) || statSync(source).mtimeMs > statSync(target).mtimeMs;
}

function step(what, command, cwd) {
  const { status, error } = npx(command, cwd, 'inherit');
  if (status !== 0) fail(`${what} failed${error ? `: ${error.message}` : ''}`);
}

function npx(command, cwd, stderr) {
  return spawnSync('npx', command, {
    cwd,
    stdio: ['ignore', stderr === 'pipe' ? 'ignore' : 'inherit', stderr],
    shell: process.platform === 'win32',
    maxBuffer: 1 << 26,
  });
}

function fail(message) {
  console.error(`setup: ${message}`);
  process.exit(1);
}
