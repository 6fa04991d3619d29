import { MxattnError } from '../errors.js';
import * as binaries from './binaries.js';

/** Builds of the kernel: integer products by plain SIMD, or by the 8-bit dot product of relaxed SIMD. */
export type WasmBuild = 'simd' | 'relaxed-simd';

interface Global {
  readonly value: number;
}

/** What packages/core/wasm/kernel.ts exports. Globals are addresses, except for `biasStride`. */
interface Exports {
  configure(
    precision: number,
    keyLength: number,
    headSize: number,
    valueHeadSize: number,
    softcap: number,
    biased: boolean,
  ): number;
  packKeys(tile: number, count: number): void;
  packValues(tile: number, count: number): void;
  packQueries(count: number, scale: number): void;
  attend(count: number): void;
  probe(signed: number, sevenBits: number): number;
  readonly rows: Global;
  readonly visible: Global;
  readonly sinks: Global;
  readonly bias: Global;
  readonly biasIndex: Global;
  readonly biasStride: Global;
}

const PAGE = 2 ** 16;
/** What an address of 32 bits can reach. */
const MOST_PAGES = 2 ** 16;

/** A loaded kernel with its memory, which grows to the largest problem so far and serves one call after another. */
export class Kernel {
  private constructor(
    readonly exports: Exports,
    private readonly memory: WebAssembly.Memory,
  ) {}

  static async load(build: WasmBuild): Promise<Kernel> {
    const memory = new WebAssembly.Memory({ initial: 1, maximum: MOST_PAGES });
    const { instance } = await WebAssembly.instantiate(bytesOf(build), { env: { memory } });
    return new Kernel(instance.exports as Exports, memory);
  }

  /** @throws MxattnError if there is not as much memory. */
  reserve(bytes: number): void {
    const pages = Math.ceil(bytes / PAGE) - this.memory.buffer.byteLength / PAGE;
    if (pages <= 0) return;
    try {
      this.memory.grow(pages);
    } catch {
      throw new MxattnError(
        `backend "wasm" needs ${Math.ceil(bytes / 2 ** 20)} MiB for the packed keys and values of one head, which ` +
          `WebAssembly memory cannot hold; shorten the keys or use another backend`,
      );
    }
  }

  /** Valid until the next `reserve`. */
  floats(address: Global, length: number, offset = 0): Float32Array {
    return new Float32Array(this.memory.buffer, (address.value >>> 0) + offset * 4, length);
  }

  ints(address: Global, length: number): Int32Array {
    return new Int32Array(this.memory.buffer, address.value >>> 0, length);
  }

  /**
   * Whether 8-bit dot products are right and fast. Operands within the instruction's contract give 60, but not in the
   * baseline compiler of Node.js 20. Those outside show the lowering: one instruction of x86 (AVX-VNNI) or Arm, or a
   * sequence that saturates at 16 bits, slower than products of 16-bit integers.
   */
  hasFastDot(): boolean {
    if (this.exports.probe(1, 15) !== 60) return false;
    const lowering = this.exports.probe(127, 255);
    return lowering === 127 * 255 * 4 || lowering === 127 * -1 * 4;
  }
}

function bytesOf(build: WasmBuild): Uint8Array {
  const base64 = build === 'simd' ? binaries.simd : binaries.relaxedSimd;
  return Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
}

const supported = new Map<WasmBuild, boolean>();

/** Whether the engine knows the instructions of a build. */
export function isSupported(build: WasmBuild): boolean {
  let known = supported.get(build);
  if (known === undefined) {
    known = typeof WebAssembly === 'object' && WebAssembly.validate(bytesOf(build));
    supported.set(build, known);
  }
  return known;
}

const loaded = new Map<WasmBuild, Promise<Kernel>>();

/** The kernel of a build, or the faster one that the engine has. */
export async function loadKernel(build?: WasmBuild): Promise<Kernel> {
  if (build === undefined) {
    const relaxed = isSupported('relaxed-simd') ? await loadKernel('relaxed-simd') : undefined;
    return relaxed?.hasFastDot() ? relaxed : loadKernel('simd');
  }
  let kernel = loaded.get(build);
  if (!kernel) {
    kernel = Kernel.load(build);
    loaded.set(build, kernel);
  }
  return kernel;
}
