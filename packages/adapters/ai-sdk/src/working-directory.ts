// Finds the directory in which the commands of a session start.
import { ConflictError, type Sandbox } from '@sandbar/sdk';

/** Creates the directory `wanted`, if it is given. Otherwise asks the machine where commands start. */
export async function findWorkingDirectory(sandbox: Sandbox, wanted: string | undefined): Promise<string> {
  if (wanted === undefined) return (await sandbox.exec('pwd')).stdout.trimEnd();
  try {
    await sandbox.files.mkdir(wanted);
  } catch (error) {
    if (!(error instanceof ConflictError)) throw error;
    // The path may be a symlink to a directory, which is fine. If it is something else, the first command fails.
  }
  return wanted;
}
