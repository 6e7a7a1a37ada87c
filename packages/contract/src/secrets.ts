// How a process gets its secrets. Every process of the same user can read a process's environment in /proc, and child
// processes inherit it. So the supervisor passes secrets through a file descriptor, and an operator can use files.
import { closeSync, readFileSync } from 'node:fs';

type Env = Record<string, string | undefined>;

/** Headers for the collector of traces, which may have its credential. The host agent needs these secrets too. */
export const TRACING_SECRETS = ['OTEL_EXPORTER_OTLP_HEADERS', 'OTEL_EXPORTER_OTLP_TRACES_HEADERS'] as const;

/** The variables with secrets. Each also has the form `NAME_FILE`: the path of a file that holds the value. */
export const SECRET_VARIABLES = [
  'SANDBAR_DATABASE_URL',
  'SANDBAR_SECRET',
  'SANDBAR_OLD_SECRET',
  'SANDBAR_SMTP_URL',
  'SANDBAR_OIDC_CLIENT_SECRET',
  'SANDBAR_STRIPE_SECRET_KEY',
  'SANDBAR_STRIPE_WEBHOOK_SECRET',
  'SANDBAR_S3_SECRET_ACCESS_KEY',
  'PGPASSWORD',
  ...TRACING_SECRETS,
] as const;

/** The number of an open descriptor from which a process reads its secrets: a JSON object of variables. */
export const SECRETS_FD = 'SANDBAR_SECRETS_FD';

/**
 * Returns the environment with all secrets in it, from their variables, their files and the descriptor, which it reads
 * to its end and closes. Throws an Error that names the variable and never quotes a value.
 */
export function readSecrets(env: Env): Env {
  const found: Env = { ...env };
  for (const name of SECRET_VARIABLES) {
    const file = env[`${name}_FILE`];
    if (!file) continue;
    if (env[name]) throw new Error(`${name} and ${name}_FILE exclude each other: set one of them.`);
    found[name] = readSecretFile(`${name}_FILE`, file);
  }
  const descriptor = env[SECRETS_FD];
  return descriptor ? { ...found, ...readDescriptor(Number(descriptor)) } : found;
}

/** Divides an environment into the secrets and the rest. The names of files with secrets are in neither. */
export function splitSecrets(env: Env): { secrets: Env; rest: Env } {
  const names: readonly string[] = SECRET_VARIABLES;
  const left = Object.entries(env).filter(
    ([name]) => name !== SECRETS_FD && !names.includes(name.replace(/_FILE$/, '')),
  );
  const secrets = Object.entries(env).filter(([name, value]) => names.includes(name) && value);
  return { secrets: Object.fromEntries(secrets), rest: Object.fromEntries(left) };
}

function readSecretFile(name: string, file: string): string {
  try {
    // Editors add a line break at the end of a file. It is not part of the secret, so remove it.
    return readFileSync(file, 'utf8').replace(/\r?\n$/, '');
  } catch (error) {
    const { code = 'unknown error' } = error as NodeJS.ErrnoException;
    throw new Error(`The file of ${name}, ${file}, cannot be read (${code}).`);
  }
}

function readDescriptor(descriptor: number): Env {
  try {
    return JSON.parse(readFileSync(descriptor, 'utf8')) as Env;
  } catch {
    throw new Error(`${SECRETS_FD} must be the number of an open descriptor with a JSON object of variables.`);
  } finally {
    closeSync(descriptor);
  }
}
