// Paths in machines on the command line: `MACHINE:/path`.
import { posix } from 'node:path';
import { InvalidArgumentError } from '@commander-js/extra-typings';
import type { Client } from '@sandbar/sdk/client.ts';
import type { Files } from '@sandbar/sdk/files.ts';
import { resolveId } from './resolve-id.ts';

/** `machine`: as the user has typed it, so perhaps a name. */
export type RemotePath = { machine: string; path: string };

/** Splits `MACHINE:/path`. Undefined for a path on this computer, such as `a/b`, `./a:b` or `-`. */
export function findRemotePath(text: string): RemotePath | undefined {
  const [, machine, path] = /^([^/:]+):(.*)$/s.exec(text) ?? [];
  if (machine === undefined || path === undefined) return undefined;
  if (!path.startsWith('/')) throw new InvalidArgumentError('The path in the machine must be absolute: MACHINE:/path.');
  return { machine, path };
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

/** The files of the machine that the path names. Throws as `resolveId` does. */
export async function filesOf(client: Client, { machine }: RemotePath): Promise<Files> {
  return client.files(await resolveId(client, 'machine', machine));
}
