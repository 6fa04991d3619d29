import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { useDriver } from './software-vulkan.js';

const MANIFESTS = '/usr/share/vulkan/icd.d';
const SOURCES = fileURLToPath(new URL('../../../packages/ort-op/native/test/vulkan/', import.meta.url));

/**
 * Makes Vulkan in this process use Mesa's software driver, which has float16 arithmetic (`shader-f16`), through a driver
 * around it that g++ compiles. Must come before anything that loads Vulkan.
 *
 * @returns why there is none; undefined if there is.
 */
export function useLavapipe(): string | undefined {
  const manifest = existsSync(MANIFESTS) && readdirSync(MANIFESTS).find((name) => name.startsWith('lvp_icd'));
  if (!manifest) return `no driver lvp_icd in ${MANIFESTS}: install mesa-vulkan-drivers`;
  const { ICD } = JSON.parse(readFileSync(join(MANIFESTS, manifest), 'utf8')) as {
    ICD: { library_path: string; api_version: string };
  };
  const folder = join(SOURCES, 'build');
  mkdirSync(folder, { recursive: true });
  const library = join(folder, 'lavapipe_icd.so');
  const driver = join(folder, 'lavapipe_icd.json');
  // Another process may be loading them.
  const unfinished = `${library}.${process.pid}`;
  const options = ['-std=c++20', '-shared', '-fPIC', `-DLAVAPIPE="${ICD.library_path}"`];
  try {
    execFileSync('g++', [...options, join(SOURCES, 'lavapipe_icd.cc'), '-o', unfinished], { stdio: 'pipe' });
  } catch (error) {
    return `g++ does not compile a driver around lavapipe: ${(error as Error).message}`;
  }
  renameSync(unfinished, library);
  const text = JSON.stringify({ file_format_version: '1.0.0', ICD: { ...ICD, library_path: library } });
  writeFileSync(unfinished, text);
  renameSync(unfinished, driver);
  useDriver(driver);
  // Its optimiser takes longer than what the tests run.
  process.env.GALLIVM_PERF = 'nopt';
  return undefined;
}
