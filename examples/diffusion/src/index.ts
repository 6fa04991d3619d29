export { openModel } from './model.js';
export { gaussianNoise } from './noise.js';
export { toPng } from './picture.js';
export { psnr } from './pixels.js';
export { encodePrompt } from './prompt.js';
export { type SampleOptions, STEPS, sample } from './sample.js';
