// Reads the environment variables once at the start and turns them into typed values. An invalid value stops the
// process with a message that names the variable and the allowed values.
import { isIP } from 'node:net';
import { DEFAULT_LISTEN, DEFAULT_METRICS_LISTEN, defaultHome, homePaths } from '@sandbar/contract/home.ts';
import { TERMINAL_BOUNDS } from '@sandbar/contract/terminal-bounds.ts';
import { type AuthConfig, readAuthConfig } from './auth/config.ts';
import { type BillingConfig, readBillingConfig } from './billing/config.ts';
import { type ObjectStoreConfig, readObjectStoreConfig } from './blobs/config.ts';
import { ConfigError } from './config-error.ts';
import { readDatabaseUrl as parseDatabaseUrl } from './db/servers.ts';
import type { Env } from './environment.ts';
import type { Overcommit } from './hosts/room.ts';
import type { ConnectionBounds } from './http/connections.ts';
import { readTlsConfig, type TlsConfig } from './tls/config.ts';

export { ConfigError };

export type Address = { host: string; port: number };

/** Durations in milliseconds, which tests shorten. `DEFAULT_TIMING` has the values that the service uses. */
export type Timing = {
  /**
   * How long a claim on an operation is valid without a renewal. After a crash, nobody can continue the operation for
   * this long.
   */
  claimTtlMs: number;
  claimRenewMs: number;
  /** How long a request waits for another operation on the same machine, volume or snapshot. */
  operationWaitMs: number;
  /** After this time without an answer to a create, its host is asked whether it is still there. */
  doubtMs: number;
  /** A copy from host to host breaks off when nothing has passed for this time. */
  copyIdleMs: number;
  /** How long the start of a job or a snapshot waits for a machine that is being started. */
  runningWaitMs: number;
  /** How long a request that writes to the stdin of a job waits for a command that does not read. */
  stdinWaitMs: number;
  /**
   * `first`: the pause after the first failed attempt at an operation. The pause doubles after each further failure, up
   * to `longest`.
   */
  retryMs: { first: number; longest: number };
  /** How old the facts about hosts may be with which a new machine is placed. */
  hostFactsMs: number;
  reconcileMs: number;
  /** The shortest pause between two comparisons of a host's running jobs, volumes and snapshots with their rows. */
  reconcileJobsMs: number;
  /**
   * The longest pauses between two full comparisons of a host with the rows: of its machines, and of everything else.
   * Comparisons are as frequent as the number of hosts and machines allows (reconcilers/rounds.ts).
   */
  compareMs: { machines: number; others: number };
  /** How long a replica's lease on a host is valid, and how often it is renewed. */
  leaseTtlMs: number;
  leaseRenewMs: number;
  /** How often a replica reads the list of hosts, besides the notifications about changes. */
  hostPollMs: number;
  /** A host that no replica has seen for this long gets no new machines. It is longer than a lease. */
  hostSeenMs: number;
  /** A running job that its host does not know is recorded as lost when it is this old. */
  jobLostMs: number;
  /** A machine that no row knows must be seen on its host for this long before the reconciler deletes it. */
  unknownGraceMs: number;
  /** The event stream is reopened if nothing arrives for this long. The agent sends a heartbeat every 5 s. */
  eventSilenceMs: number;
  /** The first and the longest pause between attempts to connect to a host agent. */
  reconnectMs: { first: number; longest: number };
  /** How often the spend guard looks for running machines of accounts that may not run machines. */
  guardMs: number;
  /** How often accounts without money are warned, and the reclaimer looks for abandoned accounts. */
  reclaimMs: number;
  /** How often the service looks in the outbox for mails that are due. */
  mailMs: number;
  /**
   * The pause after the first failed attempt to send a mail. It doubles after each further failure, up to `longest`.
   */
  mailRetryMs: { first: number; longest: number };
  /** How long a client may take to send the headers of a request, and how long a new connection may send nothing. */
  headersMs: number;
  /** The interval of heartbeats on a stream of job output, and of pings on the WebSocket of a terminal. */
  streamHeartbeatMs: number;
  /** How often a prepaid account that uses something is charged. Rounds look for such accounts every `guardMs`. */
  chargeMs: number;
  /** How long a host may take to start or stop a machine. */
  ensureMs: number;
  /** How long requests are served as always after a shutdown was asked for, while `/readyz` says no already. */
  drainMs: number;
  /** How long unfinished requests and transfers may continue after that, while new ones are refused. */
  shutdownMs: number;
  /** How often the files of the certificate are read again. */
  certificateMs: number;
  /**
   * How often blobs that nothing needs are looked for (`every`), how long a blob is kept after that, and how often new
   * images and objects that no row knows (`strays`) are looked for.
   */
  blobsMs: { every: number; kept: number; images: number; strays: number };
};

export const DEFAULT_TIMING: Timing = {
  claimTtlMs: 10_000,
  claimRenewMs: 3_000,
  operationWaitMs: 60_000,
  doubtMs: 2_000,
  // The new host also syncs the whole copy to its disk in this time.
  copyIdleMs: 120_000,
  runningWaitMs: 30_000,
  stdinWaitMs: 30_000,
  retryMs: { first: 2_000, longest: 300_000 },
  hostFactsMs: 1_000,
  reconcileMs: 2_000,
  reconcileJobsMs: 10_000,
  compareMs: { machines: 120_000, others: 300_000 },
  leaseTtlMs: 15_000,
  leaseRenewMs: 5_000,
  hostPollMs: 10_000,
  hostSeenMs: 30_000,
  jobLostMs: 30_000,
  unknownGraceMs: 6_000,
  eventSilenceMs: 15_000,
  reconnectMs: { first: 100, longest: 2_000 },
  guardMs: 5_000,
  reclaimMs: 60_000,
  mailMs: 5_000,
  mailRetryMs: { first: 60_000, longest: 3_600_000 },
  headersMs: 10_000,
  streamHeartbeatMs: 15_000,
  chargeMs: 30_000,
  ensureMs: 60_000,
  drainMs: 0,
  shutdownMs: 10_000,
  certificateMs: 5_000,
  blobsMs: { every: 60_000, kept: 3_600_000, images: 60_000, strays: 6 * 3_600_000 },
};

/** A token bucket: `perSec` tokens are added each second, up to `burst` tokens. Each request takes one. */
export type Rate = { perSec: number; burst: number };
/**
 * Rate limits, which all replicas share. `mutating`, `exec` and `files` apply to each account. The sign-in limits apply
 * to each client address and to each e-mail address. `signInUnknown` applies to each e-mail address, for the attempts
 * of all browsers that never signed in with it.
 */
export type Rates = {
  mutating: Rate;
  exec: Rate;
  files: Rate;
  signInAddress: Rate;
  signInEmail: Rate;
  signInUnknown: Rate;
};

export const DEFAULT_RATES: Rates = {
  mutating: { perSec: 10, burst: 60 },
  exec: { perSec: 20, burst: 100 },
  // This limit is high: most of the cost of a file change falls on the machine, and programs write many small files at
  // once.
  files: { perSec: 100, burst: 500 },
  signInAddress: { perSec: 1, burst: 20 },
  signInEmail: { perSec: 0.2, burst: 10 },
  signInUnknown: { perSec: 1 / 60, burst: 30 },
};

/** Limits on the resources that one client or one account may use in a replica or in the service. */
export type Bounds = ConnectionBounds & {
  /** The most open event streams of one account on one replica. */
  streamsPerAccount: number;
  /** The most open connections to terminals of one account on one replica. */
  terminalsPerAccount: number;
  /** The most snapshots of one account. */
  snapshotsPerAccount: number;
  /** The most requests and connections to ports of machines of one account at once, on one replica. */
  portConnectionsPerAccount: number;
};

export const DEFAULT_BOUNDS: Bounds = {
  connections: 4_096,
  connectionsPerAddress: 256,
  connectionsPerAccount: 1_024,
  streamsPerAccount: 256,
  terminalsPerAccount: 512,
  snapshotsPerAccount: 200,
  portConnectionsPerAccount: 512,
};

/**
 * - vcpus: an idle machine uses up to 0.7 % of a core (bench/RESULTS.md), so 128 idle vCPUs nearly fill one core. Busy
 *   machines share the cores by weight, so a factor that is too large makes them slow but breaks nothing.
 * - disk: a disk file holds only what its guest has written, 2 MB at first. With this factor the average machine may
 *   write a sixteenth of its disk, which is 640 MB at the default size. If a host's disk fills up nevertheless, the
 *   host stops its guests before they use the reserve.
 */
export const DEFAULT_OVERCOMMIT: Overcommit = { memory: 4, vcpus: 128, disk: 16 };

export const LOG_LEVELS = ['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent'] as const;
export type LogLevel = (typeof LOG_LEVELS)[number];

export type Config = {
  home: string;
  hostAgentSocket: string;
  /** Whether a host agent runs on this computer, at `hostAgentSocket`. */
  hasLocalHost: boolean;
  /** How long a host may be away, in seconds, before the machines that ran on it are recorded as ended. */
  hostLeaseSec: number;
  adminSocket: string;
  listen: Address;
  /** Undefined: the API speaks plain HTTP. */
  tls: TlsConfig | undefined;
  /** How long browsers may use only HTTPS, in seconds (Strict-Transport-Security). 0: they are not told. */
  hstsSec: number;
  metricsListen: Address;
  databaseUrl: string;
  /** Undefined: there is no object store. */
  objectStore: ObjectStoreConfig | undefined;
  overcommit: Overcommit;
  /** The activity feed keeps entries for at least this many days. It is deleted in whole months. */
  activityRetentionDays: number;
  /** The number of days without money after which an account loses its machines, snapshots and volumes. */
  reclaimDays: number;
  /** How long a terminal lives while nobody is connected to it, in seconds. */
  terminalIdleSec: number;
  /** If true, accounts other than the owner's may run machines on hosts without hardware virtualisation. */
  allowEmulatedTenants: boolean;
  rates: Rates;
  bounds: Bounds;
  /** The key that signs paging cursors and session cookies. It must be the same in every replica. */
  secret: string;
  /** The secret that {@link secret} takes the place of, while it is being changed. */
  oldSecret?: string | undefined;
  /** Addresses or networks of reverse proxies whose headers X-Forwarded-* are trusted, comma-separated; empty: none. */
  trustProxy: string;
  auth: AuthConfig;
  billing: BillingConfig;
  /** The domain below which each port of a machine has a host name of its own, in lower case. */
  previewDomain: string;
  /** Origins whose pages may show the ports of machines in frames. */
  previewFrameOrigins: readonly string[];
  /** Whether an operator account may act over HTTP, under /admin/v1/. */
  adminHttp: boolean;
  /** The folder with the built dashboard; undefined: there is none. */
  dashboardDir: string | undefined;
  logLevel: LogLevel;
  timing: Timing;
};

/**
 * Reads the configuration from the environment. `isRoot` determines the default of SANDBAR_HOME. Throws `ConfigError`.
 */
export function readConfig(env: Env, isRoot: boolean): Config {
  const home = defaultHome(env, isRoot);
  if (!home.startsWith('/')) throw new ConfigError(`SANDBAR_HOME must be an absolute path, not "${home}".`);
  const paths = homePaths(home);
  const listen = readAddress(env, 'SANDBAR_LISTEN', DEFAULT_LISTEN);
  const tls = readTlsConfig(env, paths.acme, readAddress);
  return {
    home,
    hostAgentSocket: paths.hostAgentSocket,
    hasLocalHost: readSwitch(env, 'SANDBAR_LOCAL_HOST', true),
    hostLeaseSec: readWhole(env, 'SANDBAR_HOST_LEASE_SEC', 300, { min: 30, max: 31_536_000 }),
    adminSocket: paths.adminSocket,
    listen,
    tls,
    hstsSec: readWhole(env, 'SANDBAR_HSTS_SEC', 0, { min: 0, max: 63_072_000 }),
    metricsListen: readAddress(env, 'SANDBAR_METRICS_LISTEN', DEFAULT_METRICS_LISTEN),
    databaseUrl: readDatabaseUrl(env),
    objectStore: readObjectStoreConfig(env),
    overcommit: {
      memory: readNumber(env, 'SANDBAR_MEMORY_OVERCOMMIT', DEFAULT_OVERCOMMIT.memory, { min: 0.1, max: 1000 }),
      vcpus: readNumber(env, 'SANDBAR_VCPU_OVERCOMMIT', DEFAULT_OVERCOMMIT.vcpus, { min: 0.1, max: 1000 }),
      disk: readNumber(env, 'SANDBAR_DISK_OVERCOMMIT', DEFAULT_OVERCOMMIT.disk, { min: 0.1, max: 1000 }),
    },
    activityRetentionDays: readNumber(env, 'SANDBAR_ACTIVITY_RETENTION_DAYS', 365, { min: 31, max: 36_500 }),
    reclaimDays: readWhole(env, 'SANDBAR_RECLAIM_DAYS', 30, { min: 1, max: 3_650 }),
    terminalIdleSec: readWhole(env, 'SANDBAR_TERMINAL_IDLE_SEC', TERMINAL_BOUNDS.idleSecDefault, {
      min: 10,
      max: 604_800,
    }),
    allowEmulatedTenants: env.SANDBAR_ALLOW_EMULATED_TENANTS === '1',
    rates: {
      ...DEFAULT_RATES,
      mutating: readRate(env, 'SANDBAR_RATE_MUTATING', DEFAULT_RATES.mutating),
      exec: readRate(env, 'SANDBAR_RATE_EXEC', DEFAULT_RATES.exec),
      files: readRate(env, 'SANDBAR_RATE_FILES', DEFAULT_RATES.files),
    },
    bounds: readBounds(env),
    secret: readSecret(env),
    oldSecret: env.SANDBAR_OLD_SECRET || undefined,
    trustProxy: readProxies(env),
    auth: readAuthConfig(env, originOf(listen, tls)),
    billing: readBillingConfig(env),
    ...readPreviews(env),
    adminHttp: readSwitch(env, 'SANDBAR_ADMIN_HTTP', true),
    dashboardDir: env.SANDBAR_DASHBOARD_DIR || undefined,
    logLevel: readLogLevel(env),
    timing: {
      ...DEFAULT_TIMING,
      drainMs: 1000 * readNumber(env, 'SANDBAR_DRAIN_SEC', 0, { min: 0, max: 600 }),
      shutdownMs: 1000 * readNumber(env, 'SANDBAR_SHUTDOWN_SEC', 10, { min: 0, max: 600 }),
    },
  };
}

/** The origin of the API when nobody has set one. */
function originOf({ host, port }: Address, tls: TlsConfig | undefined): string {
  const name = tls?.kind === 'acme' ? tls.domains[0] : host.includes(':') ? `[${host}]` : host;
  return `${tls ? 'https' : 'http'}://${name}:${port}`;
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
  parseDatabaseUrl(text);
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

function readSwitch(env: Env, name: string, fallback: boolean): boolean {
  const text = env[name];
  if (!text) return fallback;
  if (text === '0' || text === '1') return text === '1';
  throw new ConfigError(`${name} must be 0 or 1, not "${text}".`);
}

function readWhole(env: Env, name: string, fallback: number, bounds: { min: number; max: number }): number {
  const value = readNumber(env, name, fallback, bounds);
  if (Number.isInteger(value)) return value;
  throw new ConfigError(`${name} must be a whole number, not "${env[name]}".`);
}

function readBounds(env: Env): Bounds {
  const read = (name: string, fallback: number) => readWhole(env, name, fallback, { min: 1, max: 1_000_000 });
  return {
    connections: read('SANDBAR_MAX_CONNECTIONS', DEFAULT_BOUNDS.connections),
    connectionsPerAddress: read('SANDBAR_MAX_CONNECTIONS_PER_ADDRESS', DEFAULT_BOUNDS.connectionsPerAddress),
    connectionsPerAccount: read('SANDBAR_MAX_CONNECTIONS_PER_ACCOUNT', DEFAULT_BOUNDS.connectionsPerAccount),
    streamsPerAccount: read('SANDBAR_MAX_STREAMS', DEFAULT_BOUNDS.streamsPerAccount),
    terminalsPerAccount: read('SANDBAR_MAX_TERMINALS', DEFAULT_BOUNDS.terminalsPerAccount),
    snapshotsPerAccount: read('SANDBAR_MAX_SNAPSHOTS', DEFAULT_BOUNDS.snapshotsPerAccount),
    portConnectionsPerAccount: read('SANDBAR_MAX_PORT_CONNECTIONS', DEFAULT_BOUNDS.portConnectionsPerAccount),
  };
}

/** Reads a rate in the form `PER_SECOND/BURST`, such as 10/60. */
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

/** Reads a comma-separated list of addresses and networks. */
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

const HOST_NAME = /^(?=.{1,200}$)[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*$/;

function readPreviews(env: Env): Pick<Config, 'previewDomain' | 'previewFrameOrigins'> {
  const previewDomain = (env.SANDBAR_PREVIEW_DOMAIN || 'localhost').toLowerCase();
  if (!HOST_NAME.test(previewDomain)) {
    throw new ConfigError(
      `SANDBAR_PREVIEW_DOMAIN must be a host name such as preview.example.com, not "${previewDomain}".`,
    );
  }
  const previewFrameOrigins = (env.SANDBAR_PREVIEW_FRAME_ORIGINS ?? '').split(',').filter(Boolean);
  const isOrigin = (text: string) =>
    /^https?:$/.test(URL.parse(text)?.protocol ?? '') && URL.parse(text)?.origin === text;
  if (!previewFrameOrigins.every(isOrigin)) {
    throw new ConfigError(
      'SANDBAR_PREVIEW_FRAME_ORIGINS must be origins such as https://app.example.com, with commas.',
    );
  }
  return { previewDomain, previewFrameOrigins };
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
