// What a browser can load: the sampler without the model's files and without onnxruntime-node.
export { type DenoiseOptions, denoise, type VelocityModel } from './denoise.js';
export { gaussianNoise } from './noise.js';
export { psnr, toBytes } from './pixels.js';
export { type EncodePrompt, promptEncoder, type Vocabulary } from './vocabulary.js';
