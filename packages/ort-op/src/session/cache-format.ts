import { MxattnError, type PrecisionName, type Schedule } from '@mxattn/core';

/**
 * How a native cache holds keys and values: floats of 32 or 16 bits, or MX blocks (OCP Microscaling v1.0) of 8, 6 or 4 bits
 * an element and 0.25 bits of it a scale.
 */
export type KvCacheFormat = 'f32' | 'f16' | 'mxfp8' | 'mxfp6' | 'mxfp4';

/** CacheFormat of native/cpu/problem.h. */
const IDS: Readonly<Record<KvCacheFormat, number>> = { f32: 0, mxfp6: 1, mxfp4: 2, mxfp8: 3, f16: 4 };

/** What a precision of the CPU kernel can read: canRead of native/cpu/problem.h. */
const READABLE: Partial<Readonly<Record<PrecisionName, readonly KvCacheFormat[]>>> = {
  f32: ['f32', 'f16', 'mxfp8', 'mxfp6', 'mxfp4'],
  mxfp8: ['mxfp8', 'mxfp6', 'mxfp4'],
  mxfp6: ['mxfp6', 'mxfp4'],
  mxfp4: ['mxfp6', 'mxfp4'],
};

/** The number under which native code knows a format. */
export function cacheFormatId(format: KvCacheFormat): number {
  return IDS[format];
}

/**
 * The formats of native caches by layer: the one asked for, else that of the precision with which the layer decodes after
 * the first tokens.
 *
 * @returns Undefined where none was asked for and no one serves: a layer that is exact in one run and quantised in another,
 * or changes by step.
 * @throws MxattnError for a format that there is not, or that a precision of the schedule cannot read.
 */
export function cacheFormats(
  plan: Schedule,
  layers: number,
  asked: KvCacheFormat | undefined,
): KvCacheFormat[] | undefined {
  if (asked !== undefined) {
    checkFormat(plan, asked);
    return new Array<KvCacheFormat>(layers).fill(asked);
  }
  if (plan.needsStep) return undefined;
  // Where some rule begins or ends to hold, and so all places in the sequence that may differ.
  const tokens = [
    0,
    ...plan.rules.flatMap((rule) => (rule.tokens ? [rule.tokens[0], rule.tokens[1] + 1] : [])),
  ];
  const latest = Math.max(...tokens);
  const formats: KvCacheFormat[] = [];
  for (let layer = 0; layer < layers; layer++) {
    const used = (['prefill', 'decode'] as const).flatMap((phase) =>
      tokens.map((token) => plan.precisionAt({ layer, layers, phase, token })),
    );
    const format = plan.precisionAt({ layer, layers, phase: 'decode', token: latest }) as KvCacheFormat;
    // An exact run is not to read what was rounded, unless that was asked for.
    if (used.some((name) => (name === 'f32') !== (format === 'f32') || !READABLE[name]!.includes(format))) {
      return undefined;
    }
    formats.push(format);
  }
  return formats;
}

/** The format that holds numbers of an element type as they are, where a format would but takes more memory. */
export function tightest(format: KvCacheFormat, elementType: 'float32' | 'float16'): KvCacheFormat {
  return format === 'f32' && elementType === 'float16' ? 'f16' : format;
}

function checkFormat(plan: Schedule, format: KvCacheFormat): void {
  if (!Object.hasOwn(IDS, format)) {
    throw new MxattnError(
      `unknown kvCacheFormat "${format as string}"; there are ${Object.keys(IDS).join(', ')}`,
    );
  }
  for (const name of plan.precisions) {
    const readable = READABLE[name]!;
    if (!readable.includes(format)) {
      throw new MxattnError(
        `attention at precision ${name} cannot read a cache of kvCacheFormat ${format}; choose ${readable.join(' or ')}`,
      );
    }
  }
}
