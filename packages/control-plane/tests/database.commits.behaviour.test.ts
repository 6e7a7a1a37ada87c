// Cuts the connection to the database at each statement of a request and at its commits, on the network and in front of
// a real server. A commit whose answer is lost may have happened: the client must not be told otherwise, and a retry
// with the same key finds what was done (CTL-1, CTL-13).
import assert from 'node:assert/strict';
import { after, describe, it } from 'node:test';
import { credit } from '../src/admin/account-money.ts';
import type { App } from '../src/app.ts';
import { openDatabase } from '../src/db/database.ts';
import { toServiceError } from '../src/http/errors.ts';
import { createMachine } from '../src/machines/create.ts';
import { type Cut, startCuttingProxy } from './support/cutting-proxy.ts';
import { createDatabase, startPostgres } from './support/postgres.ts';
import { checkBooks, startTestBed } from './support/test-bed.ts';

const postgres = await startPostgres();
const databaseUrl = await createDatabase(postgres);
const bed = await startTestBed({
  databaseUrl,
  host: { subnet: '10.83.0.0/16', memory_mb: 1_000_000 },
  timing: { claimTtlMs: 500, claimRenewMs: 200, reconcileMs: 50, unknownGraceMs: 100 },
});
const { app } = bed.plane;
const url = new URL(databaseUrl);
const socket = `${url.searchParams.get('host')}/.s.PGSQL.${url.searchParams.get('port')}`;
const proxy = await startCuttingProxy(socket, url.pathname.slice(1));
after(() => proxy.close());

type Request = {
  name: string;
  send: (app: App, key: string) => Promise<unknown>;
  /** Returns how often the request was done. */
  count: (key: string) => Promise<number>;
};

const REQUESTS: Request[] = [
  {
    name: 'a create with an idempotency key',
    send: (own, key) => createMachine(own, bed.accountId, { memory_mb: 128 }, key),
    count: async (key) => {
      const { db } = app;
      const keys = await db.selectFrom('idempotency_keys').select('machine_id').where('key', '=', key).execute();
      return keys.filter(({ machine_id }) => machine_id !== null && bed.host.machines.has(machine_id)).length;
    },
  },
  {
    name: 'a credit with a reference',
    send: (own, key) => credit(own, bed.accountId, { eur: '5', as: 'top-up', reference: key }),
    count: async (key) =>
      (await app.db.selectFrom('ledger').select('id').where('reference', '=', key).execute()).length,
  },
];

/** Sends the request through the proxy. Returns the statement at which it was cut, and the error, if there were any. */
async function sendCut(request: Request, key: string, at: number, cut: Cut) {
  const db = openDatabase(proxy.url, app.log);
  // Open the connection first, so that its login and its proof are not counted.
  await db.selectFrom('accounts').select('id').limit(1).execute();
  proxy.arm(at, cut);
  const error = await request.send({ ...app, db }, key).then(
    () => undefined,
    (thrown: unknown) => thrown,
  );
  const text = proxy.disarm();
  await db.destroy();
  return { text, error };
}

describe('a connection that is cut', () => {
  for (const request of REQUESTS) {
    for (const cut of ['before', 'after'] as const) {
      it(`${cut} each statement of ${request.name}: 503, and a retry does it exactly once`, async () => {
        const commits: number[] = [];
        for (let at = 1; ; at++) {
          const key = `${request.name} ${cut} ${at}`;
          const { text, error } = await sendCut(request, key, at, cut);
          if (text === undefined) break;
          const isCommit = text === 'commit';
          if (error !== undefined) {
            const told = toServiceError(error);
            assert.deepEqual([told.status, told.code], [503, 'database_unavailable'], `${text}: ${error}`);
            if (isCommit) assert.match(told.message, /may have been done/, text);
          }
          if (isCommit) commits.push(await request.count(key));
          await request.send(app, key);
          assert.equal(await request.count(key), 1, `${key}, ${text}`);
        }
        assert(commits.length > 0, 'a commit was cut');
        if (cut === 'after') assert(commits.includes(1), 'a commit happened though its answer was lost');
      });
    }
  }

  it('leaves books that agree', async () => {
    await bed.settled(async () => {
      const open = await app.db.selectFrom('operations').select('id').where('finished_at', 'is', null).execute();
      const rows = await app.db.selectFrom('machines').select('id').where('state', '<>', 'destroyed').execute();
      return open.length === 0 && rows.length === bed.host.machines.size;
    });
    await checkBooks(bed);
  });
});
