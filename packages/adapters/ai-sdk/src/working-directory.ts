// Where the commands of a session start.
import { ConflictError, type Sandbox } from '@sandbar/sdk';

/** Finds out where commands start in a machine, or makes the directory where they shall start. */
export async function findWorkingDirectory(sandbox: Sandbox, wanted: string | undefined): Promise<string> {
  if (wanted === undefined) return (await sandbox.exec('pwd')).stdout.trimEnd();
  try {
    await sandbox.files.mkdir(wanted);
  } catch (error) {
    if (!(error instanceof ConflictError)) throw error;
    // The path may be a symlink to a directory. If it is not, the first command says so.
  }
  return wanted;
}
