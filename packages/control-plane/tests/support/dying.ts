// A process that dies at a step of its choice: what it asks of the database or of a host is counted, and from the fatal step
// on nothing is done any more, not even its clean-up; the connection that it used breaks, as it does when a process ends.
import { AsyncLocalStorage } from 'node:async_hooks';
import pg from 'pg';
import type { App } from '../../src/app.ts';
import { openDatabase } from '../../src/db/database.ts';
import type { HostClient } from '../../src/hosts/client.ts';

type Process = { steps: number; diesAt: number };

const processes = new AsyncLocalStorage<Process>();

class Dead extends Error {}

/** Whether the step of the running process is done; it is not when the process is dead by then. */
function takeStep(): boolean {
  const process = processes.getStore();
  return process === undefined || ++process.steps < process.diesAt;
}

const query = pg.Client.prototype.query as (...args: unknown[]) => unknown;
pg.Client.prototype.query = function (this: pg.Client & { connection: pg.Connection }, ...args: unknown[]) {
  if (takeStep()) return Reflect.apply(query, this, args);
  this.connection.stream.destroy();
  return Promise.reject(new Dead('the process is dead'));
} as pg.Client['query'];

/** The app of a process that can die, with connections of its own. */
function dyingApp(app: App): App {
  const db = openDatabase(app.config.databaseUrl, app.log);
  const client = (hostId: string): HostClient =>
    new Proxy(app.hosts.client(hostId), {
      get: (target, name: keyof HostClient) => {
        const method = target[name] as (...args: unknown[]) => unknown;
        return (...args: unknown[]) =>
          takeStep() ? Reflect.apply(method, target, args) : Promise.reject(new Dead('the process is dead'));
      },
    });
  // Its own reconciler dies with it.
  return { ...app, db, hosts: { ...app.hosts, client }, reconcileSoon: () => undefined };
}

/**
 * Runs `work` in a process that dies right before its `diesAt`th step, counted from 1. Returns whether it died; when not,
 * `work` came to its own end, whichever.
 */
export async function runUntilDeath(app: App, diesAt: number, work: (app: App) => Promise<unknown>): Promise<boolean> {
  const process: Process = { steps: 0, diesAt };
  const dying = dyingApp(app);
  await processes.run(process, () => work(dying).catch(() => undefined));
  await dying.db.destroy();
  return process.steps >= diesAt;
}
