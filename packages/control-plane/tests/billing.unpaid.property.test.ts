// Property test of the spend guard: no machine of an account without money runs for more than 60 s, even when one of
// two replicas fails and the clock of the database steps.
//
// Minutes pass in a moment: the test moves the database's clock forward, and runs the rounds of metering and of the
// guard on both replicas as often as the service does. One replica works, and the other dies, pauses or skips a turn at
// random. The 60 s are of time that passes. A step of the clock is not time that passes, so it does not count.
import assert from 'node:assert/strict';
import { randomInt, randomUUID } from 'node:crypto';
import { describe, it } from 'node:test';
import { ServiceError } from '@sandbar/contract/errors.ts';
import fc from 'fast-check';
import { insertAccount } from '../src/accounts/store.ts';
import type { App } from '../src/app.ts';
import { createGuard } from '../src/billing/guard.ts';
import { addEntry } from '../src/billing/ledger.ts';
import { setPrices } from '../src/billing/prices.ts';
import { chargeDueAccounts } from '../src/billing/round.ts';
import { DEFAULT_TIMING } from '../src/config.ts';
import { inTransaction } from '../src/db/transaction.ts';
import { startMachine, stopMachine } from '../src/machines/actions.ts';
import { createMachine } from '../src/machines/create.ts';
import { settle } from './support/billing-history.ts';
import { type Fate, runWithFate } from './support/dying.ts';
import { checkLedger, type Deeds } from './support/ledger-check.ts';
import { keepStateLog } from './support/state-log.ts';
import { createSteppedDatabase, readClock, resetClock, stepClock } from './support/stepped-clock.ts';
import { startTestBed } from './support/test-bed.ts';
import { spansWithoutMoney, unpaidRuns } from './support/unpaid.ts';

/** An interval so long that the service itself makes no round during the test. */
const NEVER_MS = 2_000_000_000;
const bed = await startTestBed({
  databaseUrl: await createSteppedDatabase(),
  replicas: 2,
  host: { subnet: '10.83.0.0/16', cpus: 16, memory_mb: 100_000_000 },
  timing: {
    ...{ reconcileMs: 50, guardMs: NEVER_MS, reclaimMs: NEVER_MS, chargeMs: NEVER_MS },
    // The test itself ends the claims of dead processes. Requests that meet one give up soon and are refused.
    ...{ claimTtlMs: 60_000, claimRenewMs: 1_000, operationWaitMs: 200, retryMs: { first: 20, longest: 100 } },
  },
});
const { app } = bed.plane;
const { db } = app;
await keepStateLog(bed.databaseUrl, app.log);

const { SANDBAR_PROPERTY_RUNS: runs, SANDBAR_PROPERTY_SEED: givenSeed } = process.env;
const SEEDS = givenSeed ? [Number(givenSeed)] : [1, randomInt(1_000_000)];
const SEED_MS = 3_000;
const RUNS_MAX = 100;

/** The longest time that the service lets a machine run without money. */
const UNPAID_MAX_MS = 60_000;
const LASTS_MS = 300_000;
const { chargeMs, guardMs, claimTtlMs, reconcileMs } = DEFAULT_TIMING;
/** How often the service makes a round of metering. */
const ROUND_MS = Math.min(chargeMs, guardMs);
/** After this time, another replica continues what a dead one has begun. */
const TAKE_OVER_MS = claimTtlMs + reconcileMs;
/** Events within this time happen at once. */
const WINDOW_MS = 1_000;

// One vCPU costs 1,000 micro-euro a second.
const list = {
  ...{ vcpu_hour_micros: 3_600_000, memory_gib_hour_micros: 720_000 },
  ...{ storage_gib_hour_micros: 3_600, snapshot_gib_hour_micros: 0 },
};
const priceId = await inTransaction(db, (tx) => setPrices(tx, list));

type Account = Deeds & { credits: Map<string, number> };
type Event = { what: 'create' | 'start' | 'stop' | 'topUp' | 'clock'; account: number; atMs: number; size: number };
type Plan = {
  events: Event[];
  /** When in its interval each replica makes its rounds, from 0 to 1. */
  phases: number[];
  badReplica: number;
  /** What the bad replica does at its turns, one after the other. */
  fates: (Fate | 'works' | 'skips')[];
  dieAt: number[];
};

const PLAN: fc.Arbitrary<Plan> = fc.record({
  events: fc.array(
    fc.record({
      what: fc.constantFrom<Event['what'][]>('create', 'create', 'start', 'start', 'stop', 'topUp', 'topUp', 'clock'),
      account: fc.nat({ max: 1 }),
      atMs: fc.nat({ max: LASTS_MS - 1 }),
      size: fc.nat({ max: 1_000 }),
    }),
    { minLength: 10, maxLength: 40 },
  ),
  phases: fc.array(fc.double({ min: 0, max: 0.999, noNaN: true }), { minLength: 4, maxLength: 4 }),
  badReplica: fc.nat({ max: 1 }),
  fates: fc.array(fc.constantFrom<Plan['fates'][number][]>('works', 'skips', 'dies', 'dies', 'pauses'), {
    minLength: 5,
    maxLength: 20,
  }),
  dieAt: fc.array(fc.integer({ min: 1, max: 25 }), { minLength: 5, maxLength: 20 }),
});

/** Relates the database's clock to the time that has passed. Each segment begins at a step of the clock. */
class Time {
  readonly #segments: { passedMs: number; clock: number }[] = [];
  now = 0;

  /** Records what the clock shows at this moment, at the beginning and after each step. */
  note(clock: number): void {
    this.#segments.push({ passedMs: this.now, clock });
  }

  /** Returns the passed time at which the clock first showed this instant or a later instant. */
  firstAt(instant: number): number {
    const found = this.#segments.findIndex((_, index) => this.#endOf(index) > instant);
    return this.#passedAt(found, instant);
  }

  /** Returns the passed time at which the clock last showed this instant or an earlier instant. */
  lastAt(instant: number): number {
    const found = this.#segments.findLastIndex(({ clock }) => clock <= instant);
    return this.#passedAt(found, instant);
  }

  /** What the clock shows at the end of a segment. */
  #endOf(index: number): number {
    const [segment, next] = this.#segments.slice(index);
    return segment && next ? segment.clock + next.passedMs - segment.passedMs : Number.POSITIVE_INFINITY;
  }

  #passedAt(index: number, instant: number): number {
    const segment = this.#segments[index];
    assert(segment);
    return segment.passedMs + Math.max(0, Math.min(instant, this.#endOf(index)) - segment.clock);
  }
}

const ACTIONS: Record<
  Exclude<Event['what'], 'clock'>,
  (app: App, account: Account, size: number) => Promise<unknown>
> = {
  create: (on, { accountId }, size) =>
    createMachine(on, accountId, { vcpus: 1 + (size % 4), memory_mb: 256 + size, rootfs_size_gb: 2 }),
  start: async (on, { accountId }, size) =>
    onMachine(accountId, 'stopped', size, (id) => startMachine(on, accountId, id)),
  stop: async (on, { accountId }, size) =>
    onMachine(accountId, 'running', size, (id) => stopMachine(on, accountId, id)),
  topUp: (on, account, size) => credit(on, account, 1 + size * 150),
};

async function onMachine(accountId: string, state: 'running' | 'stopped', size: number, act: (id: string) => unknown) {
  const query = db.selectFrom('machines').select('id').where('account_id', '=', accountId).where('state', '=', state);
  const rows = await query.orderBy('id').execute();
  const id = rows[size % Math.max(1, rows.length)]?.id;
  if (id) await act(id);
}

async function credit(on: App, account: Account, amountMicros: number): Promise<void> {
  const reference = randomUUID();
  account.credits.set(reference, amountMicros);
  const entry = { accountId: account.accountId, kind: 'top-up', amountMicros, reference, note: '' } as const;
  await inTransaction(on.db, (tx) => addEntry(tx, entry));
}

/** The application with the rounds of the service. */
const withRounds = (on: App): App => ({
  ...on,
  config: { ...on.config, timing: { ...on.config.timing, chargeMs } },
});
const round = (on: App) => chargeDueAccounts(withRounds(on));
const guard = async (on: App) => {
  const own = createGuard(on);
  await own.pass();
  await own.settled();
};

type Turn = { atMs: number; work: (at: Time) => Promise<unknown> };

/** The turns of both replicas, and the events. */
function turnsOf(plan: Plan, accounts: readonly Account[], died: number[]): Turn[] {
  let turns = 0;
  const badTurn = async (on: App, work: (on: App) => Promise<unknown>, time: Time) => {
    const turn = turns++;
    const fate = plan.fates[turn % plan.fates.length] ?? 'works';
    const at = plan.dieAt[turn % plan.dieAt.length] ?? 1;
    if (fate === 'skips') return;
    if (fate === 'works') await work(on);
    else await runWithFate(on, { fate, at }, work);
    if (fate === 'dies') died.push(time.now);
  };
  const periodic = bed.replicas.flatMap((replica, index) =>
    [
      { everyMs: ROUND_MS, work: round },
      { everyMs: guardMs, work: guard },
    ].flatMap(({ everyMs, work }, task) => {
      const first = Math.floor((plan.phases[index * 2 + task] ?? 0) * everyMs);
      const take = (time: Time) => (index === plan.badReplica ? badTurn(replica.app, work, time) : work(replica.app));
      return Array.from({ length: Math.ceil((LASTS_MS - first) / everyMs) }, (_, turn) => ({
        atMs: first + turn * everyMs,
        work: take,
      }));
    }),
  );
  const events = plan.events.map(({ what, account: index, atMs, size }): Turn => {
    const account = accounts[index];
    assert(account);
    // A clock that is hours ahead, or a little behind.
    if (what === 'clock') return { atMs, work: () => stepClock(db, size % 3 === 0 ? -2 * size : size * 4_000) };
    const act = () =>
      ACTIONS[what](app, account, size).catch((error: unknown) => {
        const isRefusal = error instanceof ServiceError && ['insufficient_balance', 'conflict'].includes(error.code);
        if (!isRefusal) throw error;
      });
    return { atMs, work: act };
  });
  return [...periodic, ...events].sort((a, b) => a.atMs - b.atMs);
}

async function live(plan: Plan, accounts: readonly Account[]): Promise<Time> {
  const time = new Time();
  const died: number[] = [];
  time.note(await readClock(db));
  const turns = turnsOf(plan, accounts, died);
  while (turns.length > 0) {
    const [{ atMs } = { atMs: 0 }] = turns;
    const together = turns.filter((turn) => turn.atMs < atMs + WINDOW_MS);
    turns.splice(0, together.length);
    await stepClock(db, Math.max(0, atMs - time.now));
    time.now = Math.max(time.now, atMs);
    time.note(await readClock(db));
    const isDue = (since: number) => since + TAKE_OVER_MS <= time.now;
    if (died.some(isDue)) {
      died.splice(0);
      await settle(bed);
    }
    await Promise.all(together.map(({ work }) => work(time)));
    time.note(await readClock(db));
  }
  await settle(bed);
  return time;
}

async function open(moneyMicros: number): Promise<Account> {
  const accountId = await insertAccount(db, {
    email: `${randomUUID()}@example.test`,
    tier: 'enterprise',
    billingMode: 'prepaid',
  });
  const prices = [{ id: priceId, list, after: 0, until: Number.POSITIVE_INFINITY }];
  const account: Account = { accountId, billingMode: 'prepaid', prices, credits: new Map() };
  await credit(app, account, moneyMicros);
  await createMachine(app, accountId, { vcpus: 2, memory_mb: 512, rootfs_size_gb: 2 });
  return account;
}

describe('machines of accounts without money', () => {
  for (const seed of SEEDS) {
    it(`stop within 60 s in random histories (seed ${seed})`, async (t) => {
      const until = runs ? Number.POSITIVE_INFINITY : performance.now() + SEED_MS;
      const longest: number[] = [];
      const property = fc.asyncProperty(PLAN, async (plan) => {
        if (performance.now() > until) return;
        await resetClock(db);
        const accounts = [await open(30_000), await open(200_000)];
        const time = await live(plan, accounts);
        for (const account of accounts) {
          const { parts, credits } = await checkLedger(db, account);
          for (const run of unpaidRuns(parts, spansWithoutMoney(parts, credits))) {
            const stoppedAt = run.until === Number.POSITIVE_INFINITY ? time.now : time.lastAt(run.until);
            const ms = stoppedAt - time.firstAt(run.from);
            assert(ms <= UNPAID_MAX_MS, `a machine ran unpaid for ${ms} ms, from ${new Date(run.from).toISOString()}`);
            longest.push(ms);
          }
        }
      });
      await fc.assert(property, { seed, numRuns: runs ? Number(runs) : RUNS_MAX, endOnFailure: true });
      assert(longest.length > 0, 'some accounts had no money left');
      t.diagnostic(`${longest.length} machines ran unpaid, for at most ${Math.round(Math.max(...longest))} ms`);
    });
  }
});
