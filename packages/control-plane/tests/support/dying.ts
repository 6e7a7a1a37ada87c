// Simulates a process that fails at a chosen step. Each SQL statement and each host call is one step, and the process
// has its own database connections. If it dies, this step and all later ones have no effect, not even its clean-up. If
// it loses an answer, the step is carried out, but the connection breaks before the answer arrives and the process goes
// on. If it pauses, this step and all later ones wait for a while, and locks that it holds stay locked. The database can
// also fail at one statement in a given way.
import { AsyncLocalStorage } from 'node:async_hooks';
import { setTimeout as after } from 'node:timers/promises';
import pg from 'pg';
import type { App } from '../../src/app.ts';
import type { ObjectStore } from '../../src/blobs/object-store.ts';
import { openDatabase } from '../../src/db/database.ts';
import { type HostClient, HostUnavailable } from '../../src/hosts/client.ts';

export type Fate = 'dies' | 'loses the answer' | 'pauses';
/**
 * How the database fails at a statement. `sqlstate`: PostgreSQL answers with this error and does nothing. `connection`: the
 * connection breaks with this error before the answer.
 */
export type DatabaseFailure = { sqlstate: string } | { connection: Error };
type Process = { steps: number; fate: Fate | DatabaseFailure; at: number; pause?: Promise<unknown> };
type Step = 'done' | 'dead' | 'unheard' | DatabaseFailure;

/** Long enough for other processes to act meanwhile, and shorter than every time-out. */
const PAUSE_MS = 50;

const processes = new AsyncLocalStorage<Process>();

function takeStep(): Step {
  const process = processes.getStore();
  if (!process || ++process.steps < process.at) return 'done';
  if (typeof process.fate === 'object') return process.steps === process.at ? process.fate : 'done';
  if (process.fate === 'dies') return 'dead';
  if (process.fate === 'pauses') {
    process.pause ??= after(PAUSE_MS);
    return 'done';
  }
  return process.steps === process.at ? 'unheard' : 'done';
}

const broken = () => Object.assign(new Error('Connection terminated unexpectedly'), { code: 'ECONNRESET' });

const query = pg.Client.prototype.query as (...args: unknown[]) => Promise<unknown>;
pg.Client.prototype.query = function (this: pg.Client & { connection: pg.Connection }, ...args: unknown[]) {
  const step = takeStep();
  const pause = processes.getStore()?.pause;
  // Statements that wait for the same pause are sent in their order after it.
  if (pause) return pause.then(() => Reflect.apply(query, this, args));
  if (step === 'done') return Reflect.apply(query, this, args);
  if (typeof step === 'object') return fail(this, args, step);
  const breakOff = (): Promise<never> => {
    this.connection.stream.destroy();
    return Promise.reject(broken());
  };
  return step === 'dead' ? breakOff() : Reflect.apply(query, this, args).then(breakOff, breakOff);
} as pg.Client['query'];

/** Statements that need no resource, so PostgreSQL never refuses them. */
const ALWAYS_DONE = ['begin', 'rollback'];

function fail(client: pg.Client & { connection: pg.Connection }, args: unknown[], failure: DatabaseFailure) {
  if ('connection' in failure) {
    const answer = Reflect.apply(query, client, args);
    client.connection.emit('error', failure.connection);
    client.connection.stream.destroy();
    return answer;
  }
  const [{ text }] = args as [{ text: string }];
  if (ALWAYS_DONE.includes(text)) return Reflect.apply(query, client, args);
  const raise = `do $$ begin raise exception 'The test says so.' using errcode = '${failure.sqlstate}'; end $$`;
  return Reflect.apply(query, client, [{ text: raise }]);
}

/** Returns an app with its own database connections whose host calls count as steps. It cannot wake the reconciler. */
function appOf(app: App): App {
  const client = (hostId: string): HostClient =>
    new Proxy(app.hosts.client(hostId), {
      get: (target, name: keyof HostClient) => {
        const method = target[name] as (...args: unknown[]) => Promise<unknown>;
        const unheard = () => Promise.reject(new HostUnavailable(true, broken()));
        return (...args: unknown[]) => {
          const step = takeStep();
          if (step === 'dead') return unheard();
          const answer = Reflect.apply(method, target, args);
          return step === 'unheard' ? answer.then(unheard, unheard) : answer;
        };
      },
    });
  const db = openDatabase(app.config.databaseUrl, app.log);
  const objects = app.objects && objectsOf(app.objects);
  return { ...app, db, objects, hosts: { ...app.hosts, client }, reconcileSoon: () => undefined };
}

/** Returns the object store for a process whose requests to the store count as steps. */
function objectsOf(store: ObjectStore): ObjectStore {
  const remove = async (keys: readonly string[]) => {
    const step = takeStep();
    if (step !== 'dead') await store.remove(keys);
    if (step !== 'done') throw broken();
  };
  const list = async function* (prefix: string) {
    if (takeStep() !== 'done') throw broken();
    yield* store.list(prefix);
  };
  return { ...store, remove, list };
}

/**
 * Runs `work` in a simulated process that fails at step `at`, counted from 1. Returns whether it reached that step.
 * Errors of `work` are ignored.
 */
export async function runWithFate(
  app: App,
  { fate, at }: { fate: Fate | DatabaseFailure; at: number },
  work: (app: App) => Promise<unknown>,
): Promise<boolean> {
  const process: Process = { steps: 0, fate, at };
  const own = appOf(app);
  await processes.run(process, () => work(own).catch(() => undefined));
  await own.db.destroy();
  return process.steps >= at;
}

/** Runs `work` in a simulated process that dies right before step `diesAt`, counted from 1. */
export const runUntilDeath = (app: App, diesAt: number, work: (app: App) => Promise<unknown>): Promise<boolean> =>
  runWithFate(app, { fate: 'dies', at: diesAt }, work);
