// The file system of ComputeSDK. Paths are absolute.
import type { SandboxMethods } from '@computesdk/provider';
import { NotFoundError, type Sandbox } from '@sandbar/sdk';
import type { FileEntry } from 'computesdk';
import type { SandbarInstance } from './index.ts';

export const filesystem: NonNullable<SandboxMethods<SandbarInstance>['filesystem']> = {
  readFile: ({ sandbox }, path) => sandbox.files.readText(path),
  async writeFile({ sandbox }, path, content) {
    await sandbox.files.write(path, content);
  },
  async mkdir({ sandbox }, path) {
    await sandbox.files.mkdir(path);
  },
  async readdir({ sandbox }, path) {
    const entries = await sandbox.files.list(path);
    return Promise.all(
      entries.map(async ({ name, type, size, modified_at, path: entryPath }): Promise<FileEntry> => {
        const isDirectory =
          type === 'directory' || (type === 'symlink' && (await leadsToDirectory(sandbox, entryPath)));
        return { name, type: isDirectory ? 'directory' : 'file', size, modified: new Date(modified_at) };
      }),
    );
  },
  async exists({ sandbox }, path) {
    try {
      await sandbox.files.stat(path);
      return true;
    } catch (error) {
      if (error instanceof NotFoundError) return false;
      throw error;
    }
  },
  /** Deletes a file, or a directory with everything in it. Does nothing when the path does not exist. */
  async remove({ sandbox }, path) {
    try {
      await sandbox.files.remove(path, { recursive: true });
    } catch (error) {
      if (!(error instanceof NotFoundError)) throw error;
    }
  },
};

/** ComputeSDK knows only files and directories, so a symlink is reported as the type of its target. */
async function leadsToDirectory(sandbox: Sandbox, path: string): Promise<boolean> {
  return (await sandbox.exec(['test', '-d', path])).exitCode === 0;
}
