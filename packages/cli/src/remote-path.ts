// Paths in machines on the command line: `MACHINE:/path`.
import { posix } from 'node:path';
import { InvalidArgumentError } from '@commander-js/extra-typings';

export type RemotePath = { machineId: string; path: string };

/** Splits `MACHINE:/path`. Undefined for a path on this computer, such as `a/b`, `./a:b` or `-`. */
export function findRemotePath(text: string): RemotePath | undefined {
  const [, machineId, path] = /^([^/:]+):(.*)$/s.exec(text) ?? [];
  if (machineId === undefined || path === undefined) return undefined;
  if (!path.startsWith('/')) throw new InvalidArgumentError('The path in the machine must be absolute: MACHINE:/path.');
  return { machineId, path };
}

/** Throws InvalidArgumentError for a path on this computer. */
export function parseRemotePath(text: string): RemotePath {
  const remote = findRemotePath(text);
  if (remote) return remote;
  throw new InvalidArgumentError('It must be MACHINE:/path.');
}

/** Adds a path to the previous ones, for an argument that takes several. Throws InvalidArgumentError. */
export function collectRemotePaths(text: string, previous: RemotePath[] = []): RemotePath[] {
  return [...previous, parseRemotePath(text)];
}

/** An octal mode such as 0644. Throws InvalidArgumentError. */
export function parseMode(text: string): number {
  if (/^[0-7]{3,4}$/.test(text)) return Number.parseInt(text, 8);
  throw new InvalidArgumentError('It must be an octal number such as 0644.');
}

/** The path for a copy of `source` in a directory. A source such as `dir/.` means what is in the directory. */
export function pathInside(directory: string, source: string): string {
  const isContents = /(^|\/)\.\/?$/.test(source);
  return isContents ? directory : posix.join(directory, posix.basename(source));
}
