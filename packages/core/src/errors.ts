/**
 * An error caused by what the caller passed in: a tensor, an option, a model. The message names the thing
 * and the remedy; command-line programs print it as one line and exit with code 2.
 */
export class MxattnError extends Error {
  override readonly name = 'MxattnError';
}
