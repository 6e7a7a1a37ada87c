// The error of a copy that failed on this computer. It has its own file so that every command can recognize the error
// without loading the code that copies.

/** A file on this computer cannot be read or written, or a machine sent an invalid archive. The message says why. */
export class CopyError extends Error {
  override readonly name = 'CopyError';
}
