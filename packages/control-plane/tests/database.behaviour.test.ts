// Tests that the control plane survives a database that goes away and comes back.
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { startPostgres, until } from './support/postgres.ts';
import { checkBooks, startTestBed } from './support/test-bed.ts';

const postgres = await startPostgres();
const bed = await startTestBed({ postgres });
const { api, plane } = bed;
const ready = async () => {
  const { host, port } = plane.metricsAddress;
  const response = await fetch(`http://${host}:${port}/readyz`);
  return { status: response.status, body: (await response.json()) as { checks: Record<string, string> } };
};

describe('a database that is away', () => {
  it('is a 503 within 5 s with Retry-After, and everything recovers by itself', async () => {
    const { id } = (await api('POST', '/v1/machines')).json;
    const job = (await api('POST', `/v1/machines/${id}/execs`, { body: { command: 'sleep' } })).json.id;
    assert.equal((await ready()).status, 200);
    await postgres.stop();
    for (const [method, path] of [
      ['GET', '/v1/machines'],
      ['POST', '/v1/machines'],
      ['DELETE', `/v1/machines/${id}`],
    ] as const) {
      const began = performance.now();
      const answer = await api(method, path);
      assert.deepEqual([answer.status, answer.json.code], [503, 'database_unavailable'], answer.text);
      assert(Number(answer.headers.get('retry-after')) >= 1);
      assert(performance.now() - began < 5000);
    }
    const down = await ready();
    assert.deepEqual([down.status, down.body.checks], [503, { database: 'failed', host: 'ok' }]);
    bed.host.endJob(id, job, { exit_code: 2 });
    await postgres.start();
    await until(async () => (await api('GET', '/v1/machines')).status === 200, 'reads work again');
    assert.equal((await ready()).status, 200);
    const path = `/v1/machines/${id}/execs/${job}`;
    await until(async () => (await api('GET', path)).json.exit_code === 2, 'the job that ended meanwhile is settled');
    assert.equal((await api('POST', '/v1/machines')).status, 201);
    await checkBooks(bed);
  });

  it('that stops answering is a 503 within 5 s too', async () => {
    postgres.freeze(true);
    try {
      const began = performance.now();
      const answers = await Promise.all(Array.from({ length: 30 }, () => api('GET', '/v1/machines')));
      assert.deepEqual([...new Set(answers.map((answer) => answer.status))], [503]);
      assert(performance.now() - began < 6000, `${performance.now() - began} ms`);
    } finally {
      postgres.freeze(false);
    }
    await until(async () => (await api('GET', '/v1/machines')).status === 200, 'reads work again');
  });
});
