// Counts the SQL statements of a create and of a job, because they are most of the cost. Adding a statement to these
// paths must be a decision and not an accident.
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import pg from 'pg';
import { startTestBed } from './support/test-bed.ts';

const HOUR_MS = 3_600_000;

// The reconciler runs only once an hour, so that its statements are not counted.
// The facts about hosts stay fresh for an hour, for the same reason.
const bed = await startTestBed({
  timing: {
    ...{ reconcileMs: HOUR_MS, reconcileJobsMs: HOUR_MS, eventSilenceMs: HOUR_MS, hostFactsMs: HOUR_MS },
    ...{ leaseTtlMs: 2 * HOUR_MS, leaseRenewMs: HOUR_MS, hostPollMs: HOUR_MS },
  },
});
let seen: string[] = [];
const query = pg.Client.prototype.query as (...args: unknown[]) => unknown;
pg.Client.prototype.query = function (this: pg.Client, ...args: unknown[]) {
  const [first] = args as [string | { text: string }];
  seen.push((typeof first === 'string' ? first : first.text).trim().replaceAll(/\s+/g, ' '));
  return Reflect.apply(query, this, args);
} as pg.Client['query'];
await bed.plane.reconciler.runOnce();
// The first request with a key also writes the time of the key's last use, so that request is not counted.
await bed.api('POST', '/v1/machines');

describe('statements of a request', () => {
  const statementsOf = async (work: () => Promise<unknown>): Promise<string[]> => {
    seen = [];
    await work();
    return seen;
  };

  it('a create has 18: key and rate, eight of the admission, eight of the result', async () => {
    const statements = await statementsOf(() => bed.api('POST', '/v1/machines'));
    assert.equal(statements.length, 18, statements.join('\n'));
    assert.deepEqual(
      [2, 9, 10, 17].map((index) => statements[index]),
      ['begin', 'commit', 'begin', 'commit'],
    );
  });

  it('a create with an Idempotency-Key has two more: it looks for the key, and writes it', async () => {
    const headers = { 'idempotency-key': 'counted' };
    const statements = await statementsOf(() => bed.api('POST', '/v1/machines', { headers }));
    assert.equal(statements.length, 20, statements.join('\n'));
  });

  it('a create from a snapshot has two more: it locks and reads that; one from a root volume has five', async () => {
    const { json: machine } = await bed.api('POST', '/v1/machines');
    const { json: snapshot } = await bed.api('POST', `/v1/machines/${machine.id}/snapshots`);
    const { json: kept } = await bed.api('POST', '/v1/machines');
    const volume = (await bed.api('DELETE', `/v1/machines/${kept.id}?preserve_storage=true`)).json.root_volume_id;
    for (const [body, count] of [
      [{ snapshot_id: snapshot.id }, 20],
      [{ root_volume_id: volume }, 23],
    ] as const) {
      const statements = await statementsOf(() => bed.api('POST', '/v1/machines', { body }));
      assert.equal(statements.length, count, statements.join('\n'));
    }
  });

  it('a snapshot has 24', async () => {
    const { json: machine } = await bed.api('POST', '/v1/machines');
    const statements = await statementsOf(() => bed.api('POST', `/v1/machines/${machine.id}/snapshots`));
    assert.equal(statements.length, 24, statements.join('\n'));
  });

  it('a job has eight, and its end is written once, whoever learns of it', async () => {
    const { json: machine } = await bed.api('POST', '/v1/machines');
    const path = `/v1/machines/${machine.id}/execs`;
    const start = await statementsOf(() => bed.api('POST', path, { body: { command: 'sleep' } }));
    assert.equal(start.length, 8, start.join('\n'));
    assert.deepEqual([start[2], start[7]], ['begin', 'commit']);
    const { json: list } = await bed.api('GET', path);
    const { id } = list.execs[0];
    const end = await statementsOf(async () => {
      const waiting = bed.api('GET', `${path}/${id}?wait_ms=20000`);
      await bed.settled(() => bed.host.callsOf('getJob') > 1);
      // The host sends the job's event and answers the waiting getJob at the same time.
      bed.host.endJob(machine.id, id);
      assert.equal((await waiting).json.status, 'exited');
    });
    assert.equal(end.filter((text) => text.startsWith('with "clock"')).length, 1, end.join('\n'));
    const entries = await bed.api('GET', `/v1/machines/${machine.id}/activity?category=exec`);
    assert.deepEqual(
      entries.json.activity.map((entry: { metadata: unknown }) => entry.metadata),
      [{ exit_code: 0, timeout_sec: 3600 }],
    );
  });
});
