import {
  constant,
  fromTimesteps,
  hybrid,
  hybridLayers,
  MxattnError,
  type PrecisionName,
  perStep,
  recipes,
  type ScheduleJson,
  schedule,
  scheduleSvg,
} from '@mxattn/core';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';

const NAMES = Object.keys(recipes) as PrecisionName[];

const json: ScheduleJson = {
  default: 'mxfp4',
  steps: 20,
  rules: [
    { steps: [0, 2], precision: 'mxfp6' },
    { steps: [-3, -1], precision: 'mxfp6' },
    { layers: [-1, -1], phase: 'prefill', precision: 'f32' },
  ],
};

describe('precisionAt', () => {
  test('the first matching rule wins, ranges are inclusive, negatives count from the end', () => {
    const at = (step: number, layer = 0, phase: 'prefill' | 'decode' = 'decode') =>
      schedule(json).precisionAt({ step, layer, layers: 4, phase });
    expect([0, 2, 3, 16, 17, 19].map((step) => at(step))).toEqual([
      'mxfp6',
      'mxfp6',
      'mxfp4',
      'mxfp4',
      'mxfp6',
      'mxfp6',
    ]);
    expect(at(5, 3, 'prefill')).toBe('f32');
    expect(at(5, 3, 'decode')).toBe('mxfp4');
    expect(at(1, 3, 'prefill')).toBe('mxfp6');
  });

  test('asks for what it needs and was not told', () => {
    const edges = hybrid({ steps: 20, edge: 3, edges: 'mxfp6', middle: 'mxfp4' });
    expect(edges.needsStep).toBe(true);
    expect(() => edges.precisionAt({ layer: 1 })).toThrow(
      'this schedule depends on the step: pass run(feeds, { step })',
    );
    const layers = hybridLayers({ edge: 1, edges: 'mxfp6', middle: 'mxfp4' });
    expect(layers.needsStep).toBe(false);
    expect(() => layers.precisionAt()).toThrow(/depends on the layer/);
    expect(() => layers.precisionAt({ layer: 2 })).toThrow(/number of layers/);
    expect(layers.precisionAt({ layer: 2, layers: 3 })).toBe('mxfp6');
    expect(layers.precisionAt({ layer: 1, layers: 3 })).toBe('mxfp4');
    const tokens = schedule({ default: 'mxfp4', rules: [{ tokens: [0, 31], precision: 'mxfp6' }] });
    expect([0, 31, 32].map((token) => tokens.precisionAt({ token }))).toEqual(['mxfp6', 'mxfp6', 'mxfp4']);
    expect(() => tokens.precisionAt()).toThrow(/depends on the token/);
    const phases = schedule({ default: 'f32', rules: [{ phase: 'prefill', precision: 'mxfp8' }] });
    expect(() => phases.precisionAt()).toThrow(/depends on the phase/);
  });

  test.each([-1, 20, 1.5, NaN])('step %d of 20 is out of range', (step) => {
    expect(() => schedule(json).precisionAt({ step })).toThrow(/step is .*, expected 0 to 19/);
  });
});

describe('forms', () => {
  test('builders', () => {
    const edges = hybrid({ steps: 20, edge: 3, edges: 'mxfp6', middle: 'mxfp4' });
    expect(String(edges)).toBe('3:mxfp6/14:mxfp4/3:mxfp6');
    expect(String(constant('mxfp8'))).toBe('mxfp8');
    expect(String(hybrid({ steps: 4, edge: 0, edges: 'mxfp6', middle: 'mxfp4' }))).toBe('4:mxfp4');
    expect(schedule(edges)).toBe(edges);
    expect(schedule(' 1 : f32 / 2:mxfp4 ').precisionAt({ step: 2 })).toBe('mxfp4');
    expect(schedule('mxfp6').precisionAt()).toBe('mxfp6');
  });

  test('from the timesteps of a sampler', () => {
    const early = fromTimesteps([999, 749, 499, 249], {
      default: 'mxfp4',
      ranges: [{ from: 999, to: 700, precision: 'mxfp8' }],
    });
    expect(String(early)).toBe('2:mxfp8/2:mxfp4');
  });

  test('schedules of steps round-trip through string and JSON', () => {
    const list = fc.array(fc.constantFrom(...NAMES), { minLength: 1, maxLength: 40 });
    fc.assert(
      fc.property(list, (precisions) => {
        const original = perStep(precisions);
        const viaText = schedule(String(original));
        const viaJson = schedule(JSON.stringify(original));
        expect(viaJson).toEqual(original);
        expect(String(viaText)).toBe(String(original));
        precisions.forEach((expected, step) => {
          expect(viaText.precisionAt({ step })).toBe(expected);
          expect(viaJson.precisionAt({ step })).toBe(expected);
        });
      }),
    );
  });

  test('any schedule round-trips through its JSON and its text', () => {
    const range = fc
      .tuple(fc.nat(9), fc.nat(9))
      .map(([a, b]) => [Math.min(a, b), Math.max(a, b)] as [number, number]);
    const rule = fc.record(
      {
        steps: range,
        layers: range,
        phase: fc.constantFrom('prefill' as const, 'decode' as const),
        tokens: range,
        precision: fc.constantFrom(...NAMES),
      },
      { requiredKeys: ['precision'] },
    );
    const form = fc.record({ default: fc.constantFrom(...NAMES), rules: fc.array(rule, { maxLength: 5 }) });
    fc.assert(
      fc.property(form, (form) => {
        const original = schedule(form);
        expect(schedule(original.toJSON())).toEqual(original);
        expect(schedule(String(original))).toEqual(original);
      }),
    );
  });
});

describe('errors name the bad part', () => {
  const bad: [unknown, RegExp][] = [
    ['mxfp5', /unknown precision "mxfp5"; known: f32, mxfp6, mxfp4, mxfp8/],
    ['3:mxfp6/x:mxfp4', /"x:mxfp4" is no segment/],
    ['3:mxfp6/0:mxfp4', /"0:mxfp4" is no segment/],
    ['3:mxfp6/2:fp4', /"fp4" in "2:fp4" is no precision/],
    ['{"default"', /not valid JSON/],
    [{}, /default is undefined/],
    [{ default: 'f32', steps: 0 }, /steps is 0/],
    [{ default: 'f32', rules: {} }, /rules is no array/],
    [{ default: 'f32', rulez: [] }, /unknown key "rulez"/],
    [{ default: 'f32', rules: [{ precision: 'mxfp9' }] }, /rules\[0\]\.precision is "mxfp9"/],
    [{ default: 'f32', rules: [{ precision: 'f32', steps: [3] }] }, /rules\[0\]\.steps is \[3\]/],
    [{ default: 'f32', rules: [{ precision: 'f32', layers: [3, 2] }] }, /rules\[0\]\.layers .* empty/],
    [
      { default: 'f32', steps: 4, rules: [{ precision: 'f32', steps: [0, 4] }] },
      /rules\[0\]\.steps .* beyond 4/,
    ],
    [{ default: 'f32', rules: [{ precision: 'f32', tokens: [-2, -1] }] }, /rules\[0\]\.tokens .* no end/],
    [{ default: 'f32', rules: [{ precision: 'f32', phase: 'train' }] }, /rules\[0\]\.phase is "train"/],
    [null, /expected an object/],
  ];
  test.each(bad)('%j', (form, message) => {
    const make = () => schedule(form as ScheduleJson);
    expect(make).toThrow(MxattnError);
    expect(make).toThrow(message);
  });
});

test('the picture has one titled cell per step and layer', () => {
  const svg = scheduleSvg(schedule(json), { layers: 4, phase: 'prefill' });
  expect(svg.match(/<title>/g)).toHaveLength(80);
  expect(svg).toContain('step 5, layer 3: f32');
  expect(svg).toContain('step 5, layer 2: mxfp4');
});
