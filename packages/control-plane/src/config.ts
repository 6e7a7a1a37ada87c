// The environment, read once: everything later gets typed values, and a bad value stops the process with a sentence
// that names the variable and what it allows.
import { isIP } from 'node:net';
import { DEFAULT_LISTEN, DEFAULT_METRICS_LISTEN, defaultHome, homePaths } from '@sandbar/contract/home.ts';
import { type AuthConfig, readAuthConfig } from './auth/config.ts';
import { ConfigError } from './config-error.ts';

export { ConfigError };

export type Address = { host: string; port: number };

/** Durations that tests shorten. Milliseconds; the values in force are in `DEFAULT_TIMING`. */
export type Timing = {
  /** Life of a claim that nobody renews: how long a crash keeps a machine from being worked on. */
  claimTtlMs: number;
  claimRenewMs: number;
  /** How long a request waits for another operation on the same machine. */
  operationWaitMs: number;
  /** How long an exec or a snapshot waits for a machine that is on its way to running. */
  runningWaitMs: number;
  /** Pause after the first failed attempt at an operation, which doubles with each, and the longest pause. */
  retryMs: { first: number; longest: number };
  reconcileMs: number;
  /** How often running jobs are asked for by id without a reason. */
  reconcileJobsMs: number;
  /** Age from which a job that its host does not know is lost. */
  jobLostMs: number;
  /** How long a machine that no row knows must be seen on its host before it is removed. */
  unknownGraceMs: number;
  /** Silence on the event stream (heartbeats come every 5 s) after which it is opened again. */
  eventSilenceMs: number;
  /** First and longest pause between attempts to reach a host agent. */
  reconnectMs: { first: number; longest: number };
  /** Pause between heartbeats on a stream of output. */
  streamHeartbeatMs: number;
  /** How long a host may take to make a machine run. */
  ensureMs: number;
  /** How long requests in flight may take once a shutdown began. */
  shutdownMs: number;
};

export const DEFAULT_TIMING: Timing = {
  claimTtlMs: 10_000,
  claimRenewMs: 3_000,
  operationWaitMs: 60_000,
  runningWaitMs: 30_000,
  retryMs: { first: 2_000, longest: 300_000 },
  reconcileMs: 2_000,
  reconcileJobsMs: 10_000,
  jobLostMs: 30_000,
  unknownGraceMs: 6_000,
  eventSilenceMs: 15_000,
  reconnectMs: { first: 100, longest: 2_000 },
  streamHeartbeatMs: 15_000,
  ensureMs: 60_000,
  shutdownMs: 10_000,
};

/** A token bucket: `perSec` tokens come back a second, `burst` are there at most. */
export type Rate = { perSec: number; burst: number };
/** Shared by all replicas: per account, and for sign-in per client address and per e-mail address. */
export type Rates = { mutating: Rate; exec: Rate; signInAddress: Rate; signInEmail: Rate };

export const DEFAULT_RATES: Rates = {
  mutating: { perSec: 10, burst: 60 },
  exec: { perSec: 20, burst: 100 },
  signInAddress: { perSec: 1, burst: 20 },
  signInEmail: { perSec: 0.2, burst: 10 },
};

export const LOG_LEVELS = ['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent'] as const;
export type LogLevel = (typeof LOG_LEVELS)[number];

export type Config = {
  home: string;
  hostAgentSocket: string;
  adminSocket: string;
  listen: Address;
  metricsListen: Address;
  databaseUrl: string;
  /** How many times the memory of a host may be promised to machines. */
  memoryOvercommit: number;
  /** Days that the activity feed goes back at least; whole months are dropped. */
  activityRetentionDays: number;
  /** Lets accounts beyond the owner's have machines on hosts without hardware virtualisation. */
  allowEmulatedTenants: boolean;
  rates: Rates;
  /** Signs cursors and session cookies; the same for every replica. */
  secret: string;
  /** Reverse proxies whose X-Forwarded-For is believed, as addresses or networks; empty: none. */
  trustProxy: string;
  auth: AuthConfig;
  logLevel: LogLevel;
  timing: Timing;
};

type Env = Record<string, string | undefined>;

/** Reads the configuration from the environment. Throws `ConfigError`. */
export function readConfig(env: Env, isRoot: boolean): Config {
  const home = defaultHome(env, isRoot);
  if (!home.startsWith('/')) throw new ConfigError(`SANDBAR_HOME must be an absolute path, not "${home}".`);
  const paths = homePaths(home);
  const listen = readAddress(env, 'SANDBAR_LISTEN', DEFAULT_LISTEN);
  return {
    home,
    hostAgentSocket: paths.hostAgentSocket,
    adminSocket: paths.adminSocket,
    listen,
    metricsListen: readAddress(env, 'SANDBAR_METRICS_LISTEN', DEFAULT_METRICS_LISTEN),
    databaseUrl: readDatabaseUrl(env),
    memoryOvercommit: readNumber(env, 'SANDBAR_MEMORY_OVERCOMMIT', 4, { min: 0.1, max: 1000 }),
    activityRetentionDays: readNumber(env, 'SANDBAR_ACTIVITY_RETENTION_DAYS', 365, { min: 31, max: 36_500 }),
    allowEmulatedTenants: env.SANDBAR_ALLOW_EMULATED_TENANTS === '1',
    rates: {
      ...DEFAULT_RATES,
      mutating: readRate(env, 'SANDBAR_RATE_MUTATING', DEFAULT_RATES.mutating),
      exec: readRate(env, 'SANDBAR_RATE_EXEC', DEFAULT_RATES.exec),
    },
    secret: readSecret(env),
    trustProxy: readProxies(env),
    auth: readAuthConfig(env, listen),
    logLevel: readLogLevel(env),
    timing: DEFAULT_TIMING,
  };
}

function readAddress(env: Env, name: string, fallback: string): Address {
  const text = env[name] || fallback;
  const match = /^(?:\[([0-9a-fA-F:.]+)\]|([^:[\]\s]+)):(\d{1,5})$/.exec(text);
  const host = match?.[1] ?? match?.[2];
  const port = Number(match?.[3]);
  if (host === undefined || !(port <= 65_535)) {
    throw new ConfigError(`${name} must be HOST:PORT such as ${fallback}, not "${text}".`);
  }
  return { host, port };
}

function readDatabaseUrl(env: Env): string {
  const text = env.SANDBAR_DATABASE_URL;
  if (!text) throw new ConfigError('SANDBAR_DATABASE_URL is required: postgres://USER:PASSWORD@HOST:PORT/DATABASE.');
  if (!/^postgres(ql)?:\/\//.test(text)) {
    throw new ConfigError('SANDBAR_DATABASE_URL must begin with postgres:// or postgresql://.');
  }
  return text;
}

function readNumber(env: Env, name: string, fallback: number, bounds: { min: number; max: number }): number {
  const text = env[name];
  if (!text) return fallback;
  const value = Number(text);
  if (!(value >= bounds.min && value <= bounds.max)) {
    throw new ConfigError(`${name} must be a number from ${bounds.min} to ${bounds.max}, not "${text}".`);
  }
  return value;
}

/** `PER_SECOND/BURST`, such as 10/60. */
function readRate(env: Env, name: string, fallback: Rate): Rate {
  const text = env[name];
  if (!text) return fallback;
  const match = /^(\d{1,6})\/(\d{1,6})$/.exec(text);
  const [perSec, burst] = [Number(match?.[1]), Number(match?.[2])];
  if (!(perSec >= 1 && burst >= 1)) {
    throw new ConfigError(
      `${name} must be PER_SECOND/BURST such as ${fallback.perSec}/${fallback.burst}, not "${text}".`,
    );
  }
  return { perSec, burst };
}

/** Addresses and networks, comma-separated. */
function readProxies(env: Env): string {
  const text = env.SANDBAR_TRUST_PROXY ?? '';
  const isNetwork = (item: string) => {
    const [address = '', bits] = item.trim().split('/');
    const version = isIP(address);
    return (
      version !== 0 && (bits === undefined || (/^\d{1,3}$/.test(bits) && Number(bits) <= (version === 4 ? 32 : 128)))
    );
  };
  if (text === '' || text.split(',').every(isNetwork)) return text;
  throw new ConfigError(
    `SANDBAR_TRUST_PROXY must be addresses or networks such as 127.0.0.1,10.0.0.0/8, not "${text}".`,
  );
}

const SECRET_LENGTH_MIN = 32;

function readSecret(env: Env): string {
  const text = env.SANDBAR_SECRET ?? '';
  if (text.length >= SECRET_LENGTH_MIN) return text;
  throw new ConfigError(
    `SANDBAR_SECRET is required: at least ${SECRET_LENGTH_MIN} random characters, the same for every replica.`,
  );
}

function readLogLevel(env: Env): LogLevel {
  const text = env.SANDBAR_LOG_LEVEL || 'info';
  const level = LOG_LEVELS.find((candidate) => candidate === text);
  if (!level) throw new ConfigError(`SANDBAR_LOG_LEVEL must be one of ${LOG_LEVELS.join(', ')}, not "${text}".`);
  return level;
}
