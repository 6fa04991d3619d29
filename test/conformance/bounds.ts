/** Of f32 arithmetic against the f64 reference. */
export const FLOAT_ERROR = { usual: 3e-6, largeScores: 2e-5 };

/** Of a kernel against the emulation of the same recipe. */
export const EMULATION_ERROR = 1e-3;
