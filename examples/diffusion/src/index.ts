export { openModel } from './model.js';
export { psnr, toPng } from './picture.js';
export { encodePrompt } from './prompt.js';
export { gaussianNoise, type SampleOptions, STEPS, sample } from './sample.js';
