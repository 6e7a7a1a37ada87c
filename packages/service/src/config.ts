// Reads the supervisor's settings from the environment and checks them once, at the start.
import { realpathSync } from 'node:fs';
import path from 'node:path';
import { DEFAULT_LISTEN, DEFAULT_METRICS_LISTEN, defaultCache, defaultHome } from '@sandbar/contract/home.ts';
import { readSecrets } from '@sandbar/contract/secrets.ts';
import { messageOf, Problem } from './problem.ts';

/** A Unix socket's path may have at most 107 bytes; our longest adds 30 bytes to the path of the data directory. */
const HOME_BYTES_MAX = 76;

/**
 * Many times longer than the slowest process needs. A host that is itself emulated needs a longer time in the variable.
 */
const START_PATIENCE_MS = 30_000;

/** How long the control plane may take to stop beside the times that its settings give to requests. */
const STOP_MARGIN_MS = 10_000;

export type Address = { host: string; port: number };

/** Absolute paths of PEM files. */
export type CertificateFiles = { cert: string; key: string };

export type ServiceConfig = {
  /** Absolute, without symbolic links. */
  checkout: string;
  /** Absolute. */
  home: string;
  cacheDir: string;
  listen: Address;
  metricsListen: Address;
  /** The certificate of the API. Undefined: there is none in files. */
  certificate: CertificateFiles | undefined;
  /** Whether the control plane gets its certificate by ACME. */
  hasAcme: boolean;
  /** How long the control plane may take to stop. */
  stopWithinMs: number;
  /** Undefined: the embedded PostgreSQL. */
  databaseUrl: string | undefined;
  isRoot: boolean;
  /** How long a process may take until it is first ready, and then the whole service until it answers. */
  startPatienceMs: number;
  /** The environment, including the secrets that were read from files. */
  env: NodeJS.ProcessEnv;
};

/** Reads the configuration. Throws Problem naming the variable and what it allows. */
export function readConfig(given: NodeJS.ProcessEnv, uid: number): ServiceConfig {
  const env = withSecrets(given);
  const isRoot = uid === 0;
  const home = path.resolve(defaultHome(env, isRoot));
  if (Buffer.byteLength(home) > HOME_BYTES_MAX) {
    throw new Problem(
      `SANDBAR_HOME is too long for the Unix sockets in it: choose a folder whose path has at most ${HOME_BYTES_MAX} bytes, not ${home}`,
    );
  }
  return {
    checkout: realpathSync(path.join(import.meta.dirname, '..', '..', '..')),
    home,
    cacheDir: path.resolve(defaultCache(env, isRoot)),
    listen: parseAddress('SANDBAR_LISTEN', env.SANDBAR_LISTEN || DEFAULT_LISTEN),
    metricsListen: parseAddress('SANDBAR_METRICS_LISTEN', env.SANDBAR_METRICS_LISTEN || DEFAULT_METRICS_LISTEN),
    certificate: readCertificate(env),
    hasAcme: Boolean(env.SANDBAR_TLS_ACME_DOMAINS),
    stopWithinMs: 1000 * (Number(env.SANDBAR_DRAIN_SEC || 0) + Number(env.SANDBAR_SHUTDOWN_SEC || 10)) + STOP_MARGIN_MS,
    databaseUrl: env.SANDBAR_DATABASE_URL || undefined,
    isRoot,
    startPatienceMs: parsePatience('SANDBAR_START_PATIENCE_MS', env.SANDBAR_START_PATIENCE_MS),
    env,
  };
}

function withSecrets(env: NodeJS.ProcessEnv): NodeJS.ProcessEnv {
  try {
    return readSecrets(env);
  } catch (error) {
    throw new Problem(messageOf(error));
  }
}

/** The control plane checks that both are set. */
function readCertificate({ SANDBAR_TLS_CERT: cert, SANDBAR_TLS_KEY: key }: NodeJS.ProcessEnv) {
  return cert && key ? { cert: path.resolve(cert), key: path.resolve(key) } : undefined;
}

function parsePatience(variable: string, text: string | undefined): number {
  if (!text) return START_PATIENCE_MS;
  const milliseconds = Number(text);
  if (Number.isInteger(milliseconds) && milliseconds > 0) return milliseconds;
  throw new Problem(`${variable} must be a whole number of milliseconds, not "${text}"`);
}

/** `127.0.0.1:7070` or `[::1]:7070`. Throws Problem naming the variable. */
export function parseAddress(variable: string, text: string): Address {
  const match = /^(?:\[([0-9a-fA-F:]+)\]|([^:[\]]+)):(\d{1,5})$/.exec(text);
  const port = Number(match?.[3]);
  const host = match?.[1] ?? match?.[2];
  if (host === undefined || port < 1 || port > 65_535) {
    throw new Problem(`${variable} must be an address and a port such as ${DEFAULT_LISTEN}, not "${text}"`);
  }
  return { host, port };
}

/** Writes an address in the form that {@link parseAddress} reads. */
export function formatAddress({ host, port }: Address): string {
  return `${host.includes(':') ? `[${host}]` : host}:${port}`;
}

/** The URL for clients on this machine: they reach a wildcard address over loopback. */
export function baseUrlOf(address: Address): string {
  const local: Record<string, string> = { '0.0.0.0': '127.0.0.1', '::': '::1' };
  return `http://${formatAddress({ host: local[address.host] ?? address.host, port: address.port })}`;
}

/** The URL of the API for clients on this machine. With TLS it has a name that should be in the certificate. */
export function apiUrlOf({ listen, certificate, hasAcme, env }: ServiceConfig): string {
  if (certificate === undefined && !hasAcme) return baseUrlOf(listen);
  if (env.SANDBAR_PUBLIC_URL) return env.SANDBAR_PUBLIC_URL.replace(/\/$/, '');
  const [domain = ''] = (env.SANDBAR_TLS_ACME_DOMAINS ?? '').split(',');
  const address = hasAcme ? { host: domain.trim(), port: listen.port } : listen;
  return new URL(baseUrlOf(address).replace(/^http:/, 'https:')).origin;
}
