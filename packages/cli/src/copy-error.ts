// The error of a copy that failed on this computer. It has a file of its own, because main.ts needs it but not the code of
// copies.

/** A file of this computer cannot be read or written, or what a machine sent is no archive. The message says why. */
export class CopyError extends Error {
  override readonly name = 'CopyError';
}
