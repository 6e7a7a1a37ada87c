// Random histories of accounts, for the property test of billing: what can happen to an account, how it is chosen, and
// how it is carried out on one of several replicas, which may die, lose an answer or pause at any step.
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { type ErrorCode, ServiceError } from '@sandbar/contract/errors.ts';
import fc from 'fast-check';
import { sql } from 'kysely';
import { insertAccount } from '../../src/accounts/store.ts';
import type { App } from '../../src/app.ts';
import { addEntry } from '../../src/billing/ledger.ts';
import { currentPrices, PRICE_MAX_MICROS, setPrices } from '../../src/billing/prices.ts';
import { changeBillingMode, repriceAccounts } from '../../src/billing/reprice.ts';
import { chargeDueAccounts } from '../../src/billing/round.ts';
import { inTransaction } from '../../src/db/transaction.ts';
import { destroyMachine, startMachine, stopMachine } from '../../src/machines/actions.ts';
import { createMachine } from '../../src/machines/create.ts';
import { updateMachine } from '../../src/machines/update.ts';
import { createSnapshot } from '../../src/snapshots/create.ts';
import { deleteSnapshot } from '../../src/snapshots/destroy.ts';
import { restoreSnapshot } from '../../src/snapshots/restore.ts';
import { attachVolume, detachVolume } from '../../src/volumes/attach.ts';
import { createVolume } from '../../src/volumes/create.ts';
import { deleteVolume } from '../../src/volumes/destroy.ts';
import { type Fate, runWithFate } from './dying.ts';
import type { Fault, Operation } from './fake-host/calls.ts';
import type { Deeds, PriceSpan } from './ledger-check.ts';
import { resetClock, stepClock } from './stepped-clock.ts';
import type { TestBed } from './test-bed.ts';

/** `size` and `pick` are numbers from which each action takes what it needs. */
export type Action = {
  what: keyof typeof ACTIONS;
  account: number;
  replica: number;
  pick: number;
  size: number;
  /** What happens to the process that carries the action out. */
  fate: { fate: Fate; at: number } | undefined;
  /** Whether the other replica does the same at the same time. */
  isTwice: boolean;
};
/** Actions that happen at the same time. `fault`: what goes wrong on the host meanwhile. */
export type Moment = { actions: Action[]; fault: { operation: Operation; fault: Fault; times: number } | undefined };

type Account = Deeds & { prices: PriceSpan[]; credits: Map<string, number> };
export type History = { accounts: [Account, Account] };

/**
 * `reference`: names the entry of the ledger that the action writes, if any, so that a repetition writes no second one.
 */
type Act = { account: Account; pick: number; size: number; reference: string; host: TestBed['host'] };
/** `app`: the replica that acts; it may be a copy that dies at one of its steps. */
type Perform = (app: App, act: Act) => Promise<unknown>;

/** Steps of the clock in milliseconds: small ones, hours, and two days, back as well as forward. */
const CLOCK_STEPS = [
  1, 777, 59_999, 3_600_000, 12_345_678, 86_400_000, 172_800_000, -1, -2_500, -3_600_000, -40_000_000,
];

const ACTIONS = {
  create: (app, { account, size }) => createMachine(app, account.accountId, sizesOf(size)),
  bootKept: async (app, act) => {
    const id = await pickOne(app, act, 'volumes', sql<boolean>`kind = 'root' and state = 'available'`);
    const body = { ...sizesOf(act.size), rootfs_size_gb: 20 };
    return id && createMachine(app, act.account.accountId, { ...body, root_volume_id: id });
  },
  bootSnapshot: async (app, act) => {
    const id = await pickOne(app, act, 'snapshots', sql<boolean>`state = 'ready' and kind = 'disk'`);
    const body = { ...sizesOf(act.size), rootfs_size_gb: 20 };
    return id && createMachine(app, act.account.accountId, { ...body, snapshot_id: id });
  },
  start: (app, act) =>
    onMachine(app, act, (account, id) => startMachine(app, account, id), sql<boolean>`state = 'stopped'`),
  stop: (app, act) => onMachine(app, act, (account, id) => stopMachine(app, account, id)),
  destroy: (app, act) =>
    onMachine(app, act, (account, id) => destroyMachine(app, account, id, { deleteSnapshots: true })),
  keepDisk: (app, act) =>
    onMachine(app, act, (account, id) =>
      destroyMachine(app, account, id, { deleteSnapshots: true, preserveStorage: true }),
    ),
  retag: (app, act) =>
    onMachine(app, act, (account, id) => updateMachine(app, account, id, { metadata: { team: `t${act.size}` } })),
  /** The virtual machine ends by itself. */
  end: (app, act) =>
    onMachine(app, act, async (_account, id) => {
      const reason = act.size % 2 === 0 ? 'The guest crashed.' : null;
      const isUp = act.host.machines.get(id)?.report.status === 'running';
      if (isUp) act.host.end(id, reason === null ? 'stopped' : 'failed', reason);
    }),
  snapshot: (app, act) =>
    onMachine(app, act, (account, id) => createSnapshot(app, account, id, { memory: act.size % 3 === 0 })),
  deleteSnapshot: async (app, act) => {
    const id = await pickOne(app, act, 'snapshots');
    return id && deleteSnapshot(app, act.account.accountId, id);
  },
  restore: async (app, act) => {
    const id = await pickOne(app, act, 'snapshots');
    return id && restoreSnapshot(app, act.account.accountId, id);
  },
  createVolume: (app, { account, size }) => createVolume(app, account.accountId, { size_gb: 1 + size * 4 }),
  deleteVolume: async (app, act) => {
    const id = await pickOne(app, act, 'volumes');
    return id && deleteVolume(app, act.account.accountId, id);
  },
  attach: async (app, act) => {
    const id = await pickOne(app, act, 'volumes', sql<boolean>`kind = 'data'`);
    return id && onMachine(app, act, (account, machine_id) => attachVolume(app, account, id, { machine_id }));
  },
  detach: async (app, act) => {
    const id = await pickOne(app, act, 'volumes', sql<boolean>`machine_id is not null`);
    return id && detachVolume(app, act.account.accountId, id);
  },
  topUp: (app, act) => credit(app, act, 'top-up', creditOf('topUp', act.size)),
  bonus: (app, act) => credit(app, act, 'bonus', creditOf('bonus', act.size)),
  refund: (app, act) => credit(app, act, 'refund', creditOf('refund', act.size)),
  correction: (app, act) => credit(app, act, 'correction', creditOf('correction', act.size)),
  prices: (app, { size, pick }) => {
    const most = pick % 2 === 0 ? PRICE_MAX_MICROS : 1_000_000;
    const price = (factor: number) => ((size * factor) % 7 === 0 ? 0 : (size * factor) % (most + 1));
    return inTransaction(app.db, (tx) =>
      setPrices(tx, {
        vcpu_hour_micros: price(131_071),
        memory_gib_hour_micros: price(65_537),
        storage_gib_hour_micros: price(99_991),
        snapshot_gib_hour_micros: price(524_287),
      }),
    );
  },
  reprice: (app) => repriceAccounts(app),
  mode: (app, { account, size }) =>
    inTransaction(app.db, (tx) => changeBillingMode(tx, account.accountId, size % 3 === 0 ? 'unmetered' : 'prepaid')),
  round: (app) => chargeDueAccounts(chargingAll(app)),
  clock: (app, { size }) => stepClock(app.db, CLOCK_STEPS[size % CLOCK_STEPS.length] ?? 1),
} satisfies Record<string, Perform>;

/** The application with a setting by which a round of metering charges every account. */
export const chargingAll = (app: App): App => ({
  ...app,
  config: { ...app.config, timing: { ...app.config.timing, chargeMs: -1_000_000_000 } },
});

const sizesOf = (size: number) => ({
  vcpus: 1 + (size % 4),
  memory_mb: 128 + (size % 2_000),
  rootfs_size_gb: 2 + (size % 15),
  metadata: { team: `t${size % 5}` },
});

/** The id of one of the account's rows that a client could see. */
async function pickOne(
  app: App,
  { account, pick }: Act,
  table: 'machines' | 'volumes' | 'snapshots',
  condition = sql<boolean>`state not in ('destroyed', 'creating')`,
): Promise<string | undefined> {
  const { rows } = await sql<{ id: string }>`
    select id from ${sql.table(table)} where account_id = ${account.accountId} and ${condition} order by id`.execute(
    app.db,
  );
  return rows[pick % Math.max(1, rows.length)]?.id;
}

async function onMachine(
  app: App,
  act: Act,
  work: (accountId: string, id: string) => Promise<unknown>,
  condition?: ReturnType<typeof sql<boolean>>,
): Promise<void> {
  const id = await pickOne(app, act, 'machines', condition);
  if (id) await work(act.account.accountId, id);
}

/** What each action that moves money adds to the wallet, in micro-euro. */
const CREDITS = {
  topUp: (size: number) => 1 + size * 1_000_003,
  bonus: (size: number) => 1 + size,
  refund: (size: number) => -1 - size * 499_979,
  correction: (size: number) => size * 1009 - 500_000,
};
const creditOf = (what: keyof typeof CREDITS, size: number): number => CREDITS[what](size);

type CreditKind = 'top-up' | 'bonus' | 'refund' | 'correction';

function credit(app: App, { account, reference }: Act, kind: CreditKind, amountMicros: number): Promise<boolean> {
  const entry = { accountId: account.accountId, kind, amountMicros, reference, note: '' };
  return inTransaction(app.db, (tx) => addEntry(tx, entry));
}

const WEIGHTS: Partial<Record<Action['what'], number>> = {
  create: 5,
  start: 3,
  stop: 3,
  round: 4,
  clock: 6,
  topUp: 2,
  prices: 2,
};
const NAMES = (Object.keys(ACTIONS) as Action['what'][]).flatMap((name) =>
  Array.from({ length: WEIGHTS[name] ?? 1 }, () => name),
);

/** `arbitrary`, or undefined in `none` of `none + 1` cases. */
const seldom = <T>(none: number, arbitrary: fc.Arbitrary<T>) =>
  fc.oneof({ weight: none, arbitrary: fc.constant(undefined) }, { weight: 1, arbitrary });

const ACTION: fc.Arbitrary<Action> = fc.record({
  what: fc.constantFrom(...NAMES),
  account: fc.nat({ max: 1 }),
  replica: fc.nat({ max: 1 }),
  pick: fc.nat({ max: 20 }),
  size: fc.nat({ max: 1_000 }),
  fate: seldom(
    1,
    fc.record({
      fate: fc.constantFrom<Fate[]>('dies', 'dies', 'loses the answer', 'pauses'),
      at: fc.integer({ min: 1, max: 30 }),
    }),
  ),
  isTwice: fc.boolean(),
});
const MOMENT: fc.Arbitrary<Moment> = fc.record({
  actions: fc.array(ACTION, { minLength: 1, maxLength: 4 }),
  fault: seldom(
    3,
    fc.record({
      operation: fc.constantFrom<Operation[]>('ensure', 'ensure', 'delete', 'takeSnapshot', 'deleteVolume'),
      fault: fc.constantFrom<Fault[]>('fail', 'failAfter', 'drop', 'dropAfter'),
      times: fc.integer({ min: 1, max: 3 }),
    }),
  ),
});
export const MOMENTS = fc.array(MOMENT, { minLength: 3, maxLength: 14 });

/** The first balance of the wallets: enough for most histories, but not for days at the highest prices. */
const PURSE_MICROS = 20_000_000_000;
let made = 0;

/** Makes two accounts with something to charge for. One is prepaid, the other pays nothing at first. */
export async function beginHistory(bed: TestBed): Promise<History> {
  const { app } = bed.plane;
  const { db } = app;
  await resetClock(db);
  const { id, created_at: _, ...list } = await currentPrices(db);
  const open = async (billingMode: Account['billingMode']): Promise<Account> => {
    const accountId = await insertAccount(db, { email: `p${made++}@example.test`, tier: 'enterprise', billingMode });
    const prices = [{ id, list, after: 0, until: Number.POSITIVE_INFINITY }];
    return { accountId, billingMode, prices, credits: new Map() };
  };
  const accounts: [Account, Account] = [await open('prepaid'), await open('unmetered')];
  for (const account of accounts) {
    const reference = randomUUID();
    account.credits.set(reference, PURSE_MICROS);
    const entry = {
      accountId: account.accountId,
      kind: 'bonus',
      amountMicros: PURSE_MICROS,
      reference,
      note: '',
    } as const;
    await inTransaction(db, (tx) => addEntry(tx, entry));
    const machine = await createMachine(app, account.accountId, sizesOf(3));
    await Promise.all([
      createSnapshot(app, account.accountId, machine.row.id, {}),
      createVolume(app, account.accountId, { size_gb: 3_001 }),
      createMachine(app, account.accountId, sizesOf(1_111)),
    ]);
  }
  return { accounts };
}

/** Carries out the actions of a moment, waits until the service has finished them, and records changes of prices. */
export async function live(bed: TestBed, { accounts }: History, moment: Moment): Promise<void> {
  const { actions, fault } = moment;
  const { db } = bed.plane.app;
  const before = await Promise.all(accounts.map(({ accountId }) => instantOf(bed, accountId)));
  if (fault) bed.host.fault(fault.operation, fault.fault, fault.times);
  await Promise.all(actions.map((action) => perform(bed, accounts, action, errorsOf(moment))));
  bed.host.heal();
  await settle(bed);
  const known = accounts[0].prices.at(-1)?.id ?? 0;
  const lists = await db.selectFrom('prices').selectAll().where('id', '>', known).orderBy('id').execute();
  if (lists.length === 0) return;
  await Promise.all(bed.replicas.map((replica) => repriceAccounts(replica.app)));
  for (const [index, account] of accounts.entries()) {
    const now = await instantOf(bed, account.accountId);
    for (const { id, created_at: _, ...list } of lists) {
      const last = account.prices.at(-1);
      if (last) last.until = now;
      account.prices.push({ id, list, after: before[index] ?? 0, until: Number.POSITIVE_INFINITY });
    }
  }
}

/** Errors that an action may have. Any other error, such as a deadlock, is a bug. */
const REFUSALS: readonly ErrorCode[] = ['conflict', 'not_found', 'insufficient_balance'];
/** Further errors that are allowed during a fault of the host. */
const FAILURES: readonly ErrorCode[] = ['internal_error', 'host_unavailable'];
/**
 * Further errors that are allowed when a process of the same moment loses an answer. An action that waits for the
 * operation of that process is told what its attempt failed with.
 */
const LOST_ANSWERS: readonly ErrorCode[] = ['database_unavailable', 'host_unavailable'];

function errorsOf({ actions, fault }: Moment): readonly ErrorCode[] {
  const losesAnswer = actions.some(({ fate }) => fate?.fate === 'loses the answer');
  return [...REFUSALS, ...(fault ? FAILURES : []), ...(losesAnswer ? LOST_ANSWERS : [])];
}

async function perform(
  bed: TestBed,
  accounts: History['accounts'],
  action: Action,
  expected: readonly ErrorCode[],
): Promise<void> {
  const beganAt = Date.now();
  const [first, second] = action.replica === 0 ? bed.replicas : bed.replicas.toReversed();
  assert(first && second);
  const account = accounts[action.account] ?? accounts[0];
  const act: Act = { account, pick: action.pick, size: action.size, reference: randomUUID(), host: bed.host };
  const failures: unknown[] = [];
  const work = (app: App) =>
    (ACTIONS[action.what] as Perform)(app, act).catch((error: unknown) => {
      if (!(error instanceof ServiceError && expected.includes(error.code))) failures.push(error);
    });
  const twin = action.isTwice ? work(second.app) : undefined;
  if (!action.fate) await Promise.all([work(first.app), twin]);
  else {
    const isCutOff = action.fate.fate !== 'pauses';
    const cutOff = async (app: App) => (ACTIONS[action.what] as Perform)(app, act);
    await Promise.all([runWithFate(first.app, action.fate, isCutOff ? cutOff : work), twin]);
  }
  if (action.what in CREDITS) {
    account.credits.set(act.reference, creditOf(action.what as keyof typeof CREDITS, action.size));
    // A provider repeats an event until it is answered.
    await work(second.app);
  }
  if (failures.length === 0) return;
  // What the client is told hides the cause. The log has it, with its stack.
  const warnings = bed
    .logged()
    .split('\n')
    .filter((line) => isWarningSince(line, beganAt));
  throw new AggregateError(failures, `${action.what} failed: ${failures[0]}\n${warnings.join('\n')}`);
}

function isWarningSince(line: string, beganAt: number): boolean {
  if (line === '') return false;
  const { level, time } = JSON.parse(line) as { level: number; time: number };
  return level >= WARN_LEVEL && time >= beganAt;
}
/** pino's number of the level `warn`. */
const WARN_LEVEL = 40;

async function instantOf(bed: TestBed, accountId: string): Promise<number> {
  const query = bed.plane.app.db.selectFrom('accounts').select('activity_at').where('id', '=', accountId);
  return (await query.executeTakeFirstOrThrow()).activity_at.getTime();
}

/**
 * Waits until no operation is unfinished and every machine that ended by itself is known to have ended. Claims of dead
 * processes and pauses before retries are cut short.
 */
export async function settle(bed: TestBed): Promise<void> {
  const { db } = bed.plane.app;
  await sql`update operations set claim_expires_at = now() where claim_token is not null and finished_at is null`.execute(
    db,
  );
  await bed.settled(async () => {
    const { rows } =
      await sql`select id from operations where finished_at is null and kind <> 'expire' limit 1`.execute(db);
    const running = await db.selectFrom('machines').select('id').where('state', '=', 'running').execute();
    return rows.length === 0 && running.every(({ id }) => bed.host.machines.get(id)?.report.status === 'running');
  });
}
