/// <reference types="@webgpu/types" />
import { recipes } from '@mxattn/core';
import { openDawn } from '@mxattn/ort-op/webgpu-node';
import { beforeAll, describe, expect, it } from 'vitest';
import { compose } from '../../packages/ort-op/src/webgpu/compose.js';
import * as kernels from '../../packages/ort-op/src/webgpu/kernels.js';
import type { ShapeClass } from '../../packages/ort-op/src/webgpu/shape-class.js';

const plain = { elementType: 'float32', softcap: false, bias: false, sinks: false } as const;
const everything = { ...plain, softcap: true, bias: true, sinks: true };
const shapes: readonly ShapeClass[] = [
  [64, 64],
  [128, 128],
  [192, 128],
  [576, 512],
  [40, 24],
  [33, 33],
].flatMap(([headSize, valueHeadSize]) =>
  [plain, everything, { ...everything, elementType: 'float16' as const }].map((extras) => ({
    headSize: headSize!,
    valueHeadSize: valueHeadSize!,
    ...extras,
  })),
);

function kernelsOf(shape: ShapeClass): kernels.Kernel[] {
  const { mxfp4, mxfp6, mxfp8 } = recipes;
  const matrix = shape.headSize === shape.valueHeadSize && [64, 128].includes(shape.headSize);
  return [
    ...[mxfp4, mxfp6, mxfp8].flatMap((recipe) => [
      kernels.quantiseRows(shape, recipe, false),
      kernels.quantiseRows(shape, recipe, true),
      kernels.quantiseValues(shape, recipe, matrix),
    ]),
    ...[true, false].flatMap((unroll) => [
      kernels.attendF32(shape, { unroll }),
      kernels.attendQuantised(shape, mxfp6, { unroll }, matrix),
      kernels.attendQuantised(shape, mxfp8, { unroll }, matrix),
    ]),
    ...(matrix
      ? [
          ...[mxfp6, mxfp8].flatMap((recipe) => [
            kernels.alignRows(shape, recipe, false),
            kernels.alignRows(shape, recipe, true),
            kernels.topValueScales(shape, recipe),
            kernels.alignValues(shape, recipe),
            kernels.attendMatrix(shape, recipe),
          ]),
          kernels.appendTokens(shape.headSize, shape.elementType, false),
          kernels.appendTokens(shape.headSize, shape.elementType, true),
          kernels.unpackTokens(shape.headSize, shape.elementType),
          kernels.decode(shape.headSize, shape.elementType, shape.bias),
          kernels.combine(shape.headSize, shape.elementType, true),
        ]
      : []),
  ];
}

describe('WGSL', () => {
  let device: GPUDevice;

  // Checks types, needs no GPU and knows every extension.
  beforeAll(async () => {
    const gpu = await openDawn({ switches: ['backend=null'] });
    const adapter = await gpu.requestAdapter();
    device = await adapter!.requestDevice({
      requiredFeatures: [
        'chromium-experimental-subgroup-matrix' as GPUFeatureName,
        'subgroups',
        'shader-f16',
      ],
    });
  });

  it.each(shapes)(
    'is valid at head sizes $headSize and $valueHeadSize, $elementType, bias $bias',
    async (shape) => {
      for (const { key, code } of kernelsOf(shape)) {
        const { messages } = await device.createShaderModule({ code: code() }).getCompilationInfo();
        const errors = messages.filter(({ type }) => type === 'error');
        expect(errors.map(({ lineNum, message }) => `${key}, line ${lineNum}: ${message}`)).toEqual([]);
      }
    },
  );

  it('keeps the workgroup memory of standard kernels below what every device has', () => {
    for (const { code } of shapes.flatMap(kernelsOf)) {
      const text = code();
      if (text.includes('subgroup_matrix')) continue;
      // Every scalar and vector that kernels keep there has 4 or 16 bytes.
      expect(workgroupBytes(text)).toBeLessThanOrEqual(16384);
    }
  });
});

function workgroupBytes(code: string): number {
  const constants = new Map<string, number>();
  const product = (expression: string): number =>
    expression
      .split('*')
      .map((term) =>
        term
          .split('/')
          .map((part) => constants.get(part.trim()) ?? Number.parseInt(part, 10))
          .reduce((a, b) => a / b),
      )
      .reduce((a, b) => a * b);
  const value = (expression: string) =>
    expression
      .split('+')
      .map(product)
      .reduce((a, b) => a + b);
  for (const [, name, expression] of code.matchAll(/^const (\w+) = ([\w */+]+);/gm)) {
    constants.set(name!, value(expression!));
  }
  let bytes = 0;
  for (const [, type] of code.matchAll(/^var<workgroup> \w+: (.+);/gm)) {
    const sizes = [...type!.matchAll(/, ([^,<>]+)>/g)].map(([, size]) => value(size!));
    bytes += sizes.reduce((a, b) => a * b, type!.includes('vec4') ? 16 : 4);
  }
  return bytes;
}

describe('compose', () => {
  it('leaves out, repeats and names', () => {
    const looped = compose(['normalise'], { COUNT: 3 }, { unroll: false });
    expect(looped).toContain('const COUNT = 3u;');
    expect(looped).toContain('fn normaliserOf');
    const shape = { headSize: 64, valueHeadSize: 64, ...plain };
    const rolled = kernels.attendQuantised(shape, recipes.mxfp6, { unroll: false }, false).code();
    const unrolled = kernels.attendQuantised(shape, recipes.mxfp6, { unroll: true }, false).code();
    expect(rolled).toContain('for (var key = 0u; key < BLOCK; key++) {');
    expect(unrolled).toContain('const key = 31u;');
    expect(rolled).not.toContain('fn capped');
    expect(`${rolled}${unrolled}`).not.toMatch(/^\s*#/m);
  });
});
