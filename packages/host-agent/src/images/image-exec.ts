// The defaults that an image sets for commands (environment, user, folder, entrypoint), and how a job uses them.
import type { OpenTerminal } from '@sandbar/contract/terminal.ts';
import type { JobSpec } from '../guest/guest.ts';
import { ImageError } from './image-error.ts';

/** The image author's defaults for jobs. */
export type ImageExec = {
  env: Record<string, string>;
  /** A name or id, optionally with a group; the guest resolves it. Null: root. */
  user: string | null;
  /** Absolute path. Null: the user's home folder. */
  cwd: string | null;
  /** Arguments placed before a job's argv; may be empty. */
  entrypoint: string[];
};

/** Size limit for all environment variables of an image together. */
const ENV_BYTES_MAX = 128 * 1024;
const PATH_MAX = 4096;
const USER_MAX = 256;

/**
 * Fills in from the image what the job does not set: variables, user and working directory. The image's entrypoint is
 * put before `argv`. A `command` is run by the shell alone, without the entrypoint, as `docker exec` does.
 */
export function withImageDefaults(spec: JobSpec, image: ImageExec | undefined): JobSpec {
  if (image === undefined) return spec;
  const user = spec.user ?? image.user ?? undefined;
  const cwd = spec.cwd ?? image.cwd ?? undefined;
  return {
    ...spec,
    env: { ...image.env, ...spec.env },
    ...(user === undefined ? {} : { user }),
    ...(cwd === undefined ? {} : { cwd }),
    ...(spec.argv === undefined ? {} : { argv: [...image.entrypoint, ...spec.argv] }),
  };
}

/**
 * Fills in from the image what a new terminal does not set, as for a job. `params` is the JSON of the guest call
 * `terminals.open`. The entrypoint is put before the terminal's command. A login shell runs without the entrypoint.
 */
export function withTerminalDefaults(params: string, image: ImageExec | undefined): string {
  if (image === undefined) return params;
  const { env, user, cwd, command, ...rest } = JSON.parse(params) as OpenTerminal;
  return JSON.stringify({
    ...rest,
    env: { ...image.env, ...env },
    user: user ?? image.user,
    cwd: cwd ?? image.cwd,
    ...(command === undefined ? {} : { command: [...image.entrypoint, ...command] }),
  });
}

/** Reads the `config` object of an OCI image. Throws ImageError when a field violates the specification. */
export function readImageExec(config: unknown): ImageExec {
  const env = readEnvironment(field(config, 'Env') ?? []);
  const user = readText(config, 'User', USER_MAX);
  const cwd = readText(config, 'WorkingDir', PATH_MAX);
  const entrypoint = field(config, 'Entrypoint') ?? [];
  if (!isTexts(entrypoint)) throw damaged('Entrypoint');
  return {
    env,
    user: user === '' ? null : user,
    cwd: cwd === '' ? null : cwd.startsWith('/') ? cwd : `/${cwd}`,
    entrypoint,
  };
}

/** Whether a manifest's `exec` has the form that {@link readImageExec} returns. */
export function isImageExec(value: unknown): boolean {
  const env = field(value, 'env');
  const isText = (name: string) => field(value, name) === null || typeof field(value, name) === 'string';
  const hasEnv = typeof env === 'object' && env !== null && isTexts(Object.values(env));
  return hasEnv && isText('user') && isText('cwd') && isTexts(field(value, 'entrypoint'));
}

/**
 * Parses entries of the form `NAME=VALUE`. Docker also keeps entries that are only a NAME. They set no variable, so
 * they are skipped.
 */
function readEnvironment(entries: unknown): Record<string, string> {
  if (!isTexts(entries)) throw damaged('Env');
  if (Buffer.byteLength(entries.join('\n')) > ENV_BYTES_MAX) throw damaged('Env');
  const pairs = entries.flatMap((entry): [string, string][] => {
    const equals = entry.indexOf('=');
    return equals > 0 ? [[entry.slice(0, equals), entry.slice(equals + 1)]] : [];
  });
  return Object.fromEntries(pairs);
}

function readText(config: unknown, name: string, longest: number): string {
  const value = field(config, name) ?? '';
  if (typeof value === 'string' && value.length <= longest && !value.includes('\0')) return value;
  throw damaged(name);
}

function isTexts(value: unknown): value is string[] {
  return Array.isArray(value) && value.every((one) => typeof one === 'string' && !one.includes('\0'));
}

function field(value: unknown, name: string): unknown {
  return typeof value === 'object' && value !== null && Object.hasOwn(value, name)
    ? Reflect.get(value, name)
    : undefined;
}

function damaged(name: string): ImageError {
  return new ImageError(`The image is refused: "${name}" of its configuration is not valid`);
}
