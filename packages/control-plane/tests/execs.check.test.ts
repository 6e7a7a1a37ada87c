// Tests that the API refuses a job with an argument that is longer than the kernel accepts, without asking the host.
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { startTestBed } from './support/test-bed.ts';

const LONGEST = 131_071;

describe('exec', () => {
  it('an item of argv that is longer than the kernel takes is a 400 that names the limit, and starts nothing', async () => {
    const { api, host } = await startTestBed({});
    const { id } = (await api('POST', '/v1/machines')).json;
    const start = (argv: string[]) => api('POST', `/v1/machines/${id}/execs`, { body: { argv } });
    for (const [argv, bytes] of [
      [['true', 'x'.repeat(LONGEST + 1)], LONGEST + 1],
      [['true', 'é'.repeat(LONGEST / 2 + 1)], LONGEST + 1],
    ] as const) {
      const { status, json } = await start([...argv]);
      assert.deepEqual([status, json.code], [400, 'validation_error']);
      assert.match(json.detail, new RegExp(`^argv/1 is ${bytes} bytes long, .* at most ${LONGEST}\\.`));
    }
    assert.equal(host.callsOf('startJob'), 0);
    assert.equal((await start(['true', 'x'.repeat(LONGEST)])).status, 201);
    const command = `print ${'x'.repeat(LONGEST + 1)}`;
    assert.equal((await api('POST', `/v1/machines/${id}/execs`, { body: { command } })).status, 201);
  });
});
