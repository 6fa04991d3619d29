export * from './find/index.js';
export * from './model/index.js';
export * from './rewrite/index.js';
