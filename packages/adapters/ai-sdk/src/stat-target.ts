// Finds out what a symlink points to. The service describes only the symlink itself, so run `stat` in the machine.
import type { Experimental_SandboxFileStat as SandboxFileStat } from '@ai-sdk/provider-utils';
import type { Sandbox } from '@sandbar/sdk';

/** The type and size of the file or directory at an absolute path, with symlinks followed. Null if there is none. */
export async function statTarget(
  sandbox: Sandbox,
  path: string,
  signal: AbortSignal | undefined,
): Promise<SandboxFileStat | null> {
  // BusyBox has these options as well.
  const { exitCode, stdout } = await sandbox.exec(['stat', '-L', '-c', '%s %F', path], { signal });
  if (exitCode !== 0) return null;
  const [, size, name = ''] = /^(\d+) (.*)/.exec(stdout) ?? [];
  const type = name.startsWith('regular') ? 'file' : name === 'directory' ? 'directory' : 'other';
  return { type, size: Number(size) };
}
