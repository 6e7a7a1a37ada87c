// Paths in machines on the command line: `MACHINE:/path`.
import { posix } from 'node:path';
import { InvalidArgumentError } from '@commander-js/extra-typings';
import type { Client } from '@sandbar/sdk/client.ts';
import type { Files } from '@sandbar/sdk/files.ts';
import { resolveId } from './resolve-id.ts';

/** `machine` is what the user typed: an id, the beginning of an id, or a name. */
export type RemotePath = { machine: string; path: string };

/** Splits `MACHINE:/path`. Undefined for a path on this computer, such as `a/b`, `./a:b` or `-`. */
export function findRemotePath(text: string): RemotePath | undefined {
  const [, machine, path] = /^([^/:]+):(.*)$/s.exec(text) ?? [];
  if (machine === undefined || path === undefined) return undefined;
  if (!path.startsWith('/')) throw new InvalidArgumentError('The path in the machine must be absolute: MACHINE:/path.');
  return { machine, path };
}

/** Splits `MACHINE:/path`. Throws InvalidArgumentError for a path on this computer. */
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

/** Returns the path for a copy of `source` in a directory. For `dir/.` the contents of `dir` go into the directory. */
export function pathInside(directory: string, source: string): string {
  const isContents = /(^|\/)\.\/?$/.test(source);
  return isContents ? directory : posix.join(directory, posix.basename(source));
}

/** Finds the machine of the path and returns its files. Throws as `resolveId` does. */
export async function filesOf(client: Client, { machine }: RemotePath): Promise<Files> {
  return client.files(await resolveId(client, 'machine', machine));
}
