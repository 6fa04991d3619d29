export { encodePrompt } from './prompt.js';
export { type DiffusionVariant, diffusionVariants, openModel } from './model.js';
export { psnr, toPng } from './picture.js';
export { gaussianNoise, type SampleOptions, sample, STEPS } from './sample.js';
