// Parses the values of arguments and options. A parser throws InvalidArgumentError for a bad value, and commander adds
// the name of the option to the message.
import { InvalidArgumentError } from '@commander-js/extra-typings';
import { MACHINE_BOUNDS } from '@sandbar/contract/machine-states.ts';

/** A mistake in the command line that commander does not detect. The exit code is 2. */
export class UsageError extends Error {
  override readonly name = 'UsageError';
}

/** A whole number from 0 on. Throws InvalidArgumentError. */
export function parseInteger(text: string): number {
  const value = Number(text);
  if (/^\d+$/.test(text) && Number.isSafeInteger(value)) return value;
  throw new InvalidArgumentError('It must be a whole number.');
}

/** A TCP port. Throws InvalidArgumentError. */
export function parsePort(text: string): number {
  const port = parseInteger(text);
  if (port >= 1 && port <= 65_535) return port;
  throw new InvalidArgumentError('It must be a port from 1 to 65535.');
}

/** Parses PORT or LOCAL:REMOTE. LOCAL may be 0, which means any free port. Throws InvalidArgumentError. */
export function parsePortPair(text: string): { local: number; remote: number } {
  const [local = '', remote = local, more] = text.split(':');
  if (more !== undefined) throw new InvalidArgumentError('It must be PORT or LOCAL:REMOTE.');
  return { local: local === '0' ? 0 : parsePort(local), remote: parsePort(remote) };
}

/** An id, which is never empty. Throws InvalidArgumentError. */
export function parseId(text: string): string {
  if (text !== '') return text;
  throw new InvalidArgumentError('It must not be empty.');
}

/** Adds an id to the previous ones, for an argument that takes several. Throws InvalidArgumentError. */
export function collectIds(text: string, previous: string[] = []): string[] {
  return [...previous, parseId(text)];
}

/** Adds a value to the previous ones, for an option that may be repeated. */
export function collectValues(text: string, previous: string[] = []): string[] {
  return [...previous, text];
}

/** A volume to attach to a new machine, by id or name, and its mount path, unless the service chooses the path. */
export type BootVolume = { volume: string; path: string | undefined };

/** Adds VOLUME or VOLUME:PATH to the previous ones. PATH begins with a slash. Throws InvalidArgumentError. */
export function collectVolumes(text: string, previous: BootVolume[] = []): BootVolume[] {
  const [, volume = text, path] = /^(.+?):(\/.*)$/.exec(text) ?? [];
  return [...previous, { volume: parseId(volume), path }];
}

const SECONDS = { s: 1, m: 60, h: 3600, d: 86_400 };

/** A duration such as 90s, 30m, 1h or 2d, in seconds. Throws InvalidArgumentError. */
export function parseDuration(text: string): number {
  const [, count, unit] = /^(\d{1,9})([smhd])$/.exec(text) ?? [];
  if (count === undefined) throw new InvalidArgumentError('It must be a duration such as 90s, 30m, 1h or 2d.');
  return Number(count) * SECONDS[unit as keyof typeof SECONDS];
}

/** How long until a machine expires, in seconds, or `never`. Throws InvalidArgumentError. */
export function parseExpiry(text: string): number | 'never' {
  if (text === 'never') return text;
  const sec = /^\d{1,9}[smhd]$/.test(text) ? parseDuration(text) : 0;
  if (sec >= MACHINE_BOUNDS.expirySecMin && sec <= MACHINE_BOUNDS.expirySecMax) return sec;
  throw new InvalidArgumentError('It must be a duration from 10s to 365d, such as 90s, 30m, 1h or 2d, or never.');
}

/** `true` or `false`. Throws InvalidArgumentError. */
export function parseBoolean(text: string): boolean {
  if (text === 'true' || text === 'false') return text === 'true';
  throw new InvalidArgumentError('It must be true or false.');
}

/** Adds a `KEY=VALUE` pair to the previous ones, for an option that may be repeated. Throws InvalidArgumentError. */
export function collectPairs(text: string, previous: Record<string, string> = {}): Record<string, string> {
  const at = text.indexOf('=');
  if (at > 0) return { ...previous, [text.slice(0, at)]: text.slice(at + 1) };
  throw new InvalidArgumentError('It must be KEY=VALUE.');
}

/** Like `collectPairs`, but a KEY alone gets its value from this process's environment. Throws InvalidArgumentError. */
export function collectVariables(text: string, previous: Record<string, string> = {}): Record<string, string> {
  const inherited = process.env[text];
  if (inherited !== undefined) return { ...previous, [text]: inherited };
  if (text.includes('=')) return collectPairs(text, previous);
  throw new InvalidArgumentError('It must be KEY=VALUE, or the KEY of a variable that is set.');
}

/** Leaves out the options that were not given, so that the service uses its defaults. */
export function onlyGiven<T extends object>(values: T): { [K in keyof T]?: Exclude<T[K], undefined> } {
  return Object.fromEntries(Object.entries(values).filter(([, value]) => value !== undefined)) as never;
}
