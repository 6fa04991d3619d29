import { encodePrompt, openModel, psnr, STEPS, sample, toPng } from '@mxattn/example-diffusion';
import { describe, expect, it } from 'vitest';
import { relativeError } from '../conformance/random.js';
import { MODELS } from '../session/support.js';

describe('drawing a picture', () => {
  it('at f32 is within 1e-4 of stock at every step', async () => {
    const velocities = async (backend: 'stock' | 'native') => {
      const model = await openModel(MODELS, { backend, threads: 2 });
      const steps: Float32Array[] = [];
      const picture = await sample(model, 'red heart', {
        seed: 1,
        onStep: (_, __, v) => steps.push(v.slice()),
      });
      await model.release();
      return { steps, picture };
    };
    const stock = await velocities('stock');
    const ours = await velocities('native');
    expect(ours.steps).toHaveLength(STEPS);
    ours.steps.forEach((velocity, step) => {
      expect(relativeError(velocity, stock.steps[step]!)).toBeLessThan(1e-4);
    });
    expect(psnr(ours.picture, stock.picture)).toBeGreaterThan(60);
    // A red heart on white: more red than blue in the middle, white in the corner.
    const at = (c: number, y: number, x: number) => stock.picture[(c * 64 + y) * 64 + x]!;
    expect(at(0, 32, 32)).toBeGreaterThan(at(2, 32, 32) + 0.5);
    expect(at(1, 1, 1)).toBeGreaterThan(0.8);
    expect([...toPng(ours.picture).subarray(1, 4)]).toEqual([...'PNG'].map((c) => c.charCodeAt(0)));
  });

  it('names a word that the model does not know', () => {
    expect(() => encodePrompt('purple zebraphant')).toThrow(/does not know the word "zebraphant"/);
    expect(() => encodePrompt('')).toThrow('the image prompt is empty');
  });
});
