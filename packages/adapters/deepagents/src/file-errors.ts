// Turns errors of the service into the codes that deepagents has for files that cannot be read or written.
import { ConflictError, NotFoundError, type Sandbox, ValidationError } from '@sandbar/sdk';
import type { FileOperationError } from 'deepagents';

type Attempt<T> = { value: T; error: null } | { value: null; error: FileOperationError };

/**
 * Runs an operation on the file at `path`. Returns its result, or the code of its error. Throws errors that are not
 * about the file.
 */
export async function attempt<T>(sandbox: Sandbox, path: string, operation: () => Promise<T>): Promise<Attempt<T>> {
  try {
    return { value: await operation(), error: null };
  } catch (error) {
    return { value: null, error: await codeOf(sandbox, path, error) };
  }
}

async function codeOf(sandbox: Sandbox, path: string, error: unknown): Promise<FileOperationError> {
  if (error instanceof ValidationError) return 'invalid_path';
  if (!(error instanceof NotFoundError || error instanceof ConflictError)) throw error;
  // The service answers with the same errors if the machine is gone or stopped, so check the state of the machine.
  const { state } = await sandbox.info();
  if (state !== 'running') throw error;
  if (error instanceof NotFoundError) return 'file_not_found';
  // A conflict means: the path is a directory, or a file stands where the path needs a directory, or the kernel allows
  // nobody to write the file.
  const { exitCode } = await sandbox.exec(['test', '-d', path]);
  return exitCode === 0 ? 'is_directory' : 'invalid_path';
}
