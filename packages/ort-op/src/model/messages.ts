/** A message with some fields replaced, the others shared. */
export function copy<T extends object>(message: T, fields: Partial<T>): T {
  // Fields a message does not set live in its prototype.
  return Object.assign(Object.create(Object.getPrototypeOf(message)), message, fields);
}
