export {
  type Dispatch,
  type Interception,
  interceptDispatches,
  type PassRecorder,
  type Replacement,
  type Replacements,
} from './intercept.js';
export {
  fingerprint,
  type Program,
  type ProgramBinding,
  type ProgramUniform,
  readProgram,
} from './program.js';
