// A control plane to test: real PostgreSQL, a fake host, one or more replicas in this process, API keys of two
// accounts, and a client that checks every successful answer against the contract.
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after } from 'node:test';
import { Account } from '@sandbar/contract/account.ts';
import { ActivityList } from '@sandbar/contract/activity.ts';
import {
  AccountCredited,
  AccountDetails,
  AccountSummaryList,
  Audit,
  FailedOperationList,
  HostSummary,
  HostSummaryList,
  HostTokenList,
  NewAccount,
  NewHostToken,
  NewPassword,
} from '@sandbar/contract/admin.ts';
import { ApiKeyList, NewApiKey } from '@sandbar/contract/api-key.ts';
import { LedgerDetails, LedgerList, PaymentPage, Usage } from '@sandbar/contract/billing.ts';
import { DeviceCode, DeviceLogin } from '@sandbar/contract/device-login.ts';
import { Exec, ExecList, ExecOutput, ExecStarted, ExecStdin } from '@sandbar/contract/exec.ts';
import { ErrorBody } from '@sandbar/contract/fields.ts';
import { FileEntry, FileList, FileUnpacked } from '@sandbar/contract/file.ts';
import { homePaths } from '@sandbar/contract/home.ts';
import type { HostInfo } from '@sandbar/contract/host-api.ts';
import { ImageList } from '@sandbar/contract/image.ts';
import { Machine, MachineList } from '@sandbar/contract/machine.ts';
import { Port, PortList, PortToken } from '@sandbar/contract/port.ts';
import { Quotas } from '@sandbar/contract/quota.ts';
import { Snapshot, SnapshotList } from '@sandbar/contract/snapshot.ts';
import { TerminalList, TerminalSession } from '@sandbar/contract/terminal.ts';
import { Volume, VolumeList } from '@sandbar/contract/volume.ts';
import type { Tracing } from '@sandbar/tracing/tracing.ts';
import { sql } from 'kysely';
import type { TSchema } from 'typebox';
import { Value } from 'typebox/value';
import { insertAccount } from '../../src/accounts/store.ts';
import { insertKey } from '../../src/api-keys/store.ts';
import { findInBilling } from '../../src/audit/audit.ts';
import { setPassword } from '../../src/auth/password.ts';
import { type Bounds, type Config, DEFAULT_BOUNDS, DEFAULT_TIMING, type Rate, type Timing } from '../../src/config.ts';
import { type ControlPlane, startControlPlane } from '../../src/control-plane.ts';
import { createHostClient, type HostClient } from '../../src/hosts/client.ts';
import type { HostClients, RemoteHost } from '../../src/hosts/hosts.ts';
import type { Overcommit } from '../../src/hosts/room.ts';
import { createLog, type Log } from '../../src/log.ts';
import { FakeHost } from './fake-host.ts';
import { createDatabase, endSharedPostgres, type PostgresServer, until } from './postgres.ts';
import { addRemoteHost, socketOfRemote } from './remote-hosts.ts';

/** Intervals short enough for tests and long enough for a busy machine. */
const TEST_TIMING: Timing = {
  ...DEFAULT_TIMING,
  claimTtlMs: 3_000,
  claimRenewMs: 500,
  retryMs: { first: 100, longest: 1_000 },
  reconcileMs: 100,
  reconcileJobsMs: 200,
  jobLostMs: 500,
  unknownGraceMs: 200,
  reconnectMs: { first: 20, longest: 100 },
  mailRetryMs: { first: 100, longest: 1_000 },
  leaseTtlMs: 3_000,
  leaseRenewMs: 200,
  hostPollMs: 500,
  streamHeartbeatMs: 200,
  shutdownMs: 2_000,
};

/** A rate limit that no test reaches by accident. */
const UNLIMITED: Rate = { perSec: 10_000, burst: 10_000 };

/** The password of the test account, which owns the keys `full` and `read`. */
export const TEST_PASSWORD = 'the password of the tests';
export const TEST_ORIGIN = 'http://sandbar.test';

export type TestBed = {
  plane: ControlPlane;
  replicas: ControlPlane[];
  /** The host of the replicas' computer. */
  host: FakeHost;
  /** Hosts on other computers. */
  remotes: FakeHost[];
  databaseUrl: string;
  accountId: string;
  keys: { full: string; read: string; other: string };
  /** Everything that was logged, as text. */
  logged: () => string;
  api: Api;
  /** Waits until the service itself, without the test's help, has reached a condition. */
  settled(condition: () => boolean | Promise<boolean>): Promise<void>;
  /**
   * Signs in to the test account and returns the `Cookie` header. A request that changes something also needs `Origin:
   * TEST_ORIGIN`.
   */
  session(): Promise<string>;
  /** Starts one more replica on the same database and hosts. `timing` replaces durations of the bed's. */
  addReplica(timing?: Partial<Timing>, clientOf?: ClientOf): Promise<ControlPlane>;
  /** Adds a host on another computer to the fleet. Does not wait until the replicas know it. */
  addRemote(info?: Partial<HostInfo>): Promise<FakeHost>;
};

export type Answer<T = Record<string, unknown>> = { status: number; headers: Headers; text: string; json: T };
export type CallOptions = {
  key?: string | null;
  body?: unknown;
  rawBody?: string | Uint8Array<ArrayBuffer>;
  headers?: Record<string, string>;
  plane?: ControlPlane;
};
// biome-ignore lint/suspicious/noExplicitAny: tests read fields of many shapes; the schemas are checked here.
export type Api = <T = any>(method: string, path: string, options?: CallOptions) => Promise<Answer<T>>;

/** How a replica reaches a host on another computer; `reached` is the ordinary client. */
export type ClientOf = (remote: RemoteHost, reached: HostClient) => HostClient;

export type BedOptions = {
  timing?: Partial<Timing>;
  host?: Partial<HostInfo>;
  overcommit?: Partial<Overcommit>;
  /** Overrides of the configuration. Without them the rate limits are too high to reach. */
  config?: Partial<Omit<Config, 'bounds'>>;
  bounds?: Partial<Bounds>;
  replicas?: number;
  /** How the first replicas reach hosts on other computers. */
  clientOf?: ClientOf;
  /** Hosts on other computers, besides the one on the replicas' computer. */
  remotes?: Partial<HostInfo>[];
  postgres?: PostgresServer;
  /** How the replicas trace. Default: not at all. */
  tracing?: Tracing;
  /** The URL of an empty database to use. Without it, a new one is created. */
  databaseUrl?: string;
};

/** Starts a test bed. Everything is stopped and removed after the tests of the file. */
export async function startTestBed(options: BedOptions = {}): Promise<TestBed> {
  const databaseUrl = options.databaseUrl ?? (await createDatabase(options.postgres));
  const root = mkdtempSync(join(tmpdir(), 'sandbar-cp-'));
  const host = new FakeHost(join(root, 'host.sock'), options.host);
  await host.listen();
  const lines: string[] = [];
  const log: Log = createLog('debug', { write: (line: string) => void lines.push(line) });
  const replicas: ControlPlane[] = [];
  const remotes: FakeHost[] = [];
  let begun = 0;

  // A test that slows the reconciler down also needs slow tasks of billing.
  const billingMs = options.timing?.reconcileMs ?? TEST_TIMING.reconcileMs;
  const billing = { guardMs: billingMs, reclaimMs: billingMs, mailMs: billingMs };
  const hasLocalHost = options.config?.hasLocalHost ?? true;
  const addReplica = async (
    timing: Partial<Timing> = {},
    clientOf: ClientOf = options.clientOf ?? ((_remote, reached) => reached),
  ) => {
    // Replicas start at the same time, and each needs a folder of its own.
    const home = join(root, `replica-${begun++}`);
    const config: Config = {
      home,
      hostAgentSocket: join(root, 'host.sock'),
      hasLocalHost,
      hostLeaseSec: 300,
      adminSocket: homePaths(home).adminSocket,
      listen: { host: '127.0.0.1', port: 0 },
      tls: undefined,
      hstsSec: 0,
      metricsListen: { host: '127.0.0.1', port: 0 },
      databaseUrl,
      objectStore: undefined,
      // Tests make more machines than a host with 2 cores could reserve vCPUs for; tests about vCPUs set their own
      // factor.
      overcommit: { memory: 4, vcpus: 1000, disk: 16, ...options.overcommit },
      activityRetentionDays: 365,
      reclaimDays: 30,
      terminalIdleSec: 600,
      allowEmulatedTenants: true,
      rates: {
        mutating: UNLIMITED,
        exec: UNLIMITED,
        files: UNLIMITED,
        signInAddress: UNLIMITED,
        signInEmail: UNLIMITED,
        signInUnknown: UNLIMITED,
      },
      secret: 'a secret of the tests that is long enough',
      trustProxy: '',
      auth: {
        publicUrl: TEST_ORIGIN,
        signUp: 'closed',
        signUpBilling: 'prepaid',
        mail: undefined,
        oidc: undefined,
      },
      billing: { payments: undefined },
      adminHttp: true,
      dashboardDir: undefined,
      previewDomain: 'localhost',
      previewFrameOrigins: [],
      ...options.config,
      bounds: { ...DEFAULT_BOUNDS, ...options.bounds },
      logLevel: 'debug',
      timing: { ...TEST_TIMING, ...billing, ...options.timing, ...timing },
    };
    // Tests compare as often as the reconciler runs.
    config.timing.compareMs = { machines: config.timing.reconcileMs, others: config.timing.reconcileJobsMs };
    const clients: Partial<HostClients> = {
      clientOf: (remote) => clientOf(remote, createHostClient({ socketPath: socketOfRemote(root, remote) })),
    };
    const plane = await startControlPlane(config, log, clients, options.tracing);
    replicas.push(plane);
    if (!hasLocalHost) return plane;
    await until(() => plane.app.hosts.reachableIds().includes(host.info.host_id), 'the replica reached the host');
    await until(() => replicas.some(({ app }) => app.hosts.listenedIds().includes(host.info.host_id)), 'one listens');
    return plane;
  };
  after(async () => {
    host.heal();
    for (const remote of remotes) remote.heal();
    await Promise.all(replicas.map((replica) => replica.close()));
    await Promise.all([host, ...remotes].map((one) => one.away()));
    await endSharedPostgres();
    rmSync(root, { recursive: true, force: true });
  });
  await Promise.all(Array.from({ length: options.replicas ?? 1 }, () => addReplica()));
  const [plane] = replicas;
  assert(plane);
  const { db } = plane.app;
  const addRemote = async (info: Partial<HostInfo> = {}) => {
    const remote = await addRemoteHost(db, root, remotes.length, info);
    remotes.push(remote);
    return remote;
  };
  for (const info of options.remotes ?? []) await addRemote(info);
  await until(() => {
    const listened = new Set(replicas.flatMap(({ app }) => app.hosts.listenedIds()));
    return remotes.every(({ info }) => listened.has(info.host_id));
  }, 'the replicas listen to all hosts');
  const accountId = await insertAccount(db, { email: 'owner@example.test', tier: 'enterprise' });
  const otherId = await insertAccount(db, { email: 'other@example.test', tier: 'enterprise' });
  const keys = {
    full: await insertKey(db, accountId, 'full', 'full'),
    read: await insertKey(db, accountId, 'read', 'read'),
    other: await insertKey(db, otherId, 'full', 'other'),
  };
  const api = createApi(plane, keys.full);
  let password: Promise<void> | undefined;
  const session = async () => {
    password ??= setPassword(db, accountId, TEST_PASSWORD);
    await password;
    const body = { email: 'owner@example.test', password: TEST_PASSWORD };
    const { headers } = await api('POST', '/v1/auth/sign-in', { key: null, body });
    return cookieOf(headers);
  };
  const settled = (condition: () => boolean | Promise<boolean>) => until(condition, 'the service settled');
  return {
    plane,
    replicas,
    host,
    remotes,
    databaseUrl,
    accountId,
    keys,
    logged: () => lines.join(''),
    api,
    session,
    addReplica,
    addRemote,
    settled,
  };
}

/** Returns the `Cookie` header that a browser would send after this answer to a route outside of /v1/auth. */
export const cookieOf = (headers: Headers): string =>
  headers
    .getSetCookie()
    .filter((cookie) => !cookie.includes('; Path=/v1/auth'))
    .map((cookie) => cookie.split(';')[0])
    .join('; ');

function createApi(defaultPlane: ControlPlane, defaultKey: string): Api {
  return async (method, path, options = {}) => {
    const { host, port } = (options.plane ?? defaultPlane).address;
    const key = options.key === undefined ? defaultKey : options.key;
    const body = options.rawBody ?? (options.body === undefined ? undefined : JSON.stringify(options.body));
    const response = await fetch(`http://${host}:${port}${path}`, {
      method,
      redirect: 'manual',
      headers: {
        ...(key === null ? {} : { authorization: `Bearer ${key}` }),
        ...(body === undefined ? {} : { 'content-type': 'application/json' }),
        ...options.headers,
      },
      ...(body === undefined ? {} : { body }),
    });
    const text = await response.text();
    const isJson = response.headers.get('content-type')?.startsWith('application/json') === true && text !== '';
    const json = isJson ? JSON.parse(text) : undefined;
    assert(response.headers.get('x-request-id'), 'every response carries X-Request-Id');
    if (isJson) checkAnswer(method, path, response.status, json);
    return { status: response.status, headers: response.headers, text, json };
  };
}

const SCHEMAS: [RegExp, TSchema][] = [
  [/^\/v1\/(account|auth\/sign-(in|up))$/, Account],
  [/^\/v1\/auth\/device\/code$/, DeviceCode],
  [/^\/v1\/auth\/device\/token$/, NewApiKey],
  [/^\/v1\/auth\/device\/lookup$/, DeviceLogin],
  [/^\/admin\/v1\/accounts$/, AccountSummaryList],
  [/^\/admin\/v1\/accounts\/[^/]+\/credit$/, AccountCredited],
  [/^\/admin\/v1\/accounts\/[^/]+(\/(tier|limits|suspend|resume))?$/, AccountDetails],
  [/^\/admin\/v1\/accounts\/[^/]+\/password$/, NewPassword],
  [/^\/admin\/v1\/hosts$/, HostSummaryList],
  [/^\/admin\/v1\/hosts\/[^/]+\/(un)?drain$/, HostSummary],
  [/^\/admin\/v1\/host-tokens$/, HostTokenList],
  [/^\/admin\/v1\/audit$/, Audit],
  [/^\/admin\/v1\/failed-operations$/, FailedOperationList],
  [/^\/v1\/api-keys$/, ApiKeyList],
  [/^\/v1\/billing\/usage$/, Usage],
  [/^\/v1\/billing\/ledger$/, LedgerList],
  [/^\/v1\/billing\/ledger\/[^/]+$/, LedgerDetails],
  [/^\/v1\/images$/, ImageList],
  [/^\/v1\/machines\/[^/]+\/execs\/[^/]+\/output$/, ExecOutput],
  [/^\/v1\/machines\/[^/]+\/execs\/[^/]+\/stdin$/, ExecStdin],
  [/^\/v1\/machines\/[^/]+\/execs\/[^/]+(\/cancel|\/signal)?$/, Exec],
  [/^\/v1\/machines\/[^/]+\/execs$/, ExecList],
  [/\/files$/, FileList],
  [/\/files\/(entry|content|directory|move)$/, FileEntry],
  [/\/files\/archive$/, FileUnpacked],
  [/^\/v1\/(machines\/[^/]+\/)?activity$/, ActivityList],
  [/^\/v1\/machines\/[^/]+\/ports$/, PortList],
  [/^\/v1\/machines\/[^/]+\/ports\/\d+$/, Port],
  [/^\/v1\/quotas$/, Quotas],
  [/^\/v1\/volumes\/[^/]+(\/attach|\/detach)?$/, Volume],
  [/^\/v1\/volumes$/, VolumeList],
  [/^\/v1\/snapshots\/[^/]+\/restore$/, Machine],
  [/^\/v1\/snapshots\/[^/]+$/, Snapshot],
  [/^\/v1\/(machines\/[^/]+\/)?snapshots$/, SnapshotList],
  [/^\/v1\/machines\/[^/]+\/terminals$/, TerminalList],
  [/^\/v1\/machines\/[^/]+(\/stop|\/start)?$/, Machine],
  [/^\/v1\/machines$/, MachineList],
];

const CREATED: [RegExp, TSchema][] = [
  [/^\/admin\/v1\/accounts$/, NewAccount],
  [/^\/admin\/v1\/host-tokens$/, NewHostToken],
  [/^\/v1\/billing\/(top-ups|card)$/, PaymentPage],
  [/\/execs$/, ExecStarted],
  [/\/terminal-session$/, TerminalSession],
  [/^\/v1\/volumes$/, Volume],
  [/\/snapshots$/, Snapshot],
  [/\/files\/directory$/, FileEntry],
  [/\/ports\/\d+\/token$/, PortToken],
];

/** The creates whose replays answer 200 with the created object. */
const REPLAYED = /^\/v1\/(machines|volumes|machines\/[^/]+\/snapshots)$/;

/** Asserts that an answer matches the schema of the contract and has no other field. */
function checkAnswer(method: string, path: string, status: number, json: unknown): void {
  const route = path.split('?')[0] ?? '';
  let schema = status >= 400 ? ErrorBody : SCHEMAS.find(([pattern]) => pattern.test(route))?.[1];
  const isReplay = method === 'POST' && status === 200 && REPLAYED.test(route);
  if (route === '/v1/api-keys' && status === 201) schema = NewApiKey;
  else if (route.startsWith('/v1/auth/') && !route.startsWith('/v1/auth/device/') && status < 300) schema = Account;
  else if (status === 201 || isReplay) schema = CREATED.find(([pattern]) => pattern.test(route))?.[1] ?? Machine;
  if (!schema) return;
  assert(Value.Check(schema, json), `${method} ${path} answered ${status} ${JSON.stringify(json)}`);
  const allowed = Object.keys((schema as { properties?: object }).properties ?? {});
  const extra = Object.keys(json as object).filter((name) => !allowed.includes(name));
  assert.deepEqual(extra, [], `${method} ${path} answered unknown fields`);
}

/**
 * Checks that the host's reservations equal the sums over its machines and volumes, that quota usage, volumes and
 * snapshots agree, and that ledger, meters and feed agree. Call it when no request is unfinished.
 */
export async function checkBooks(bed: TestBed): Promise<void> {
  const { plane } = bed;
  const { db } = plane.app;
  // Read rows and reservations in one transaction, because the reconciler may change both at any time.
  const { rows, volumes, reserved } = await db
    .transaction()
    .setIsolationLevel('repeatable read')
    .execute(async (tx) => ({
      rows: await tx.selectFrom('machines').selectAll().execute(),
      volumes: await tx.selectFrom('volumes').selectAll().execute(),
      reserved: await tx
        .selectFrom('hosts')
        .select((is) => [
          is.fn.sum<number>('reserved_memory_mb').as('reserved_memory_mb'),
          is.fn.sum<number>('reserved_vcpus').as('reserved_vcpus'),
          is.fn.sum<number>('reserved_disk_gb').as('reserved_disk_gb'),
        ])
        .executeTakeFirstOrThrow(),
    }));
  const holders = rows.filter((row) => row.state === 'running' || row.state === 'provisioning');
  const disks = rows.filter((row) => row.state !== 'destroyed').map((row) => row.rootfs_size_gb);
  const volumeDisks = volumes.filter((row) => row.state !== 'taken').map((row) => row.size_gb);
  const sum = (amounts: number[]) => amounts.reduce((total, amount) => total + amount, 0);
  assert.deepEqual(
    reserved,
    {
      reserved_memory_mb: sum(holders.map((row) => row.memory_mb)),
      reserved_vcpus: sum(holders.map((row) => row.vcpus)),
      reserved_disk_gb: sum([...disks, ...volumeDisks]),
    },
    'the reservation equals a recount',
  );
  const alive = rows.filter((row) => row.state !== 'destroyed');
  const addresses = alive.flatMap((row) => row.private_ip ?? []);
  assert.equal(new Set(addresses).size, addresses.length, 'addresses are unique');
  await checkUse(plane);
  await checkVolumes(bed);
  await checkSnapshots(bed);
  const inBilling = await findInBilling(plane.app);
  assert.deepEqual(
    inBilling.map(({ subject, detail }) => [subject, detail]),
    [],
    'ledger, meters and feed agree',
  );
  const known = new Set(alive.map((row) => row.id));
  assert.deepEqual(
    [bed.host, ...bed.remotes].flatMap(({ machines }) => [...machines.keys()]).filter((id) => !known.has(id)),
    [],
    'no host has no machine without a row',
  );
}

/**
 * Checks that each machine has the same volumes on the host as in the rows, and that a destroyed machine has none.
 * Skips machines with an unfinished operation.
 */
async function checkVolumes({ plane, host, remotes }: TestBed): Promise<void> {
  const volumes = await plane.app.db.selectFrom('volumes').selectAll().execute();
  const machines = await plane.app.db.selectFrom('machines').selectAll().execute();
  const operations = plane.app.db.selectFrom('operations').select('machine_id').where('finished_at', 'is', null);
  const busy = new Set((await operations.execute()).map((row) => row.machine_id));
  const machineOf = (id: string) => [host, ...remotes].map((one) => one.machines.get(id)).find(Boolean);
  for (const { id, state } of machines) {
    const ours = volumes.filter((row) => row.machine_id === id && row.kind === 'data');
    if (state === 'destroyed') assert.deepEqual(ours, [], 'a destroyed machine has no volumes');
    if (busy.has(id) || (state !== 'running' && state !== 'stopped')) continue;
    assert.deepEqual(
      (machineOf(id)?.wanted.volumes ?? []).map(({ volume_id, mount_path }) => [volume_id, mount_path]).sort(),
      ours.map((row) => [row.id, row.mount_path]).sort(),
      `the host gives ${state} machine ${id} the volumes that its rows say`,
    );
  }
}

/** Checks that the host has every snapshot whose row is ready, and no snapshot without a row. */
async function checkSnapshots({ plane, host, remotes }: TestBed): Promise<void> {
  const rows = await plane.app.db.selectFrom('snapshots').selectAll().execute();
  const settled = rows.filter((row) => row.state === 'ready');
  const present = new Set([host, ...remotes].flatMap(({ snapshots }) => [...snapshots.keys()]));
  assert.deepEqual(
    settled.filter((row) => !present.has(row.id)),
    [],
    'the host has every snapshot that is ready',
  );
  const known = new Set(rows.map((row) => row.id));
  assert.deepEqual(
    [...present].filter((id) => !known.has(id)),
    [],
    'the host has no snapshot without a row',
  );
}

/** Checks that the usage counters of each account equal a recount of its machines and disks. */
async function checkUse(plane: ControlPlane): Promise<void> {
  const { rows } = await sql`
    select a.id, a.used_machines, a.used_vcpus, a.used_memory_mb, a.used_storage_gb, a.used_volumes, m.*, v.*
    from accounts a,
      lateral (select count(*) as machines, coalesce(sum(vcpus), 0) as vcpus, coalesce(sum(memory_mb), 0) as memory_mb,
        coalesce(sum(rootfs_size_gb), 0) as disks
        from machines where account_id = a.id and state not in ('error', 'destroyed')) m,
      lateral (select coalesce(sum(size_gb), 0) as volumes, count(*) filter (where kind = 'data') as data_volumes
        from volumes where account_id = a.id and state <> 'taken') v
    where (a.used_machines, a.used_vcpus, a.used_memory_mb, a.used_storage_gb, a.used_volumes)
      <> (m.machines, m.vcpus, m.memory_mb, m.disks + v.volumes, v.data_volumes)`.execute(plane.app.db);
  assert.deepEqual(rows, [], 'the quotas equal a recount');
}
