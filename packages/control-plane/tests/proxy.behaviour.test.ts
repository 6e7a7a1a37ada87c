// Tests that the client address is taken from X-Forwarded-For only when a trusted proxy sent the header.
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { startTestBed } from './support/test-bed.ts';

const rates = {
  mutating: { perSec: 1000, burst: 1000 },
  exec: { perSec: 1000, burst: 1000 },
  files: { perSec: 1000, burst: 1000 },
  signInAddress: { perSec: 1 / 3600, burst: 2 },
  signInEmail: { perSec: 1000, burst: 1000 },
  signInUnknown: { perSec: 1000, burst: 1000 },
};

/**
 * Signs in three times from one client address and once from another, both set in the X-Forwarded-For header. Returns
 * the four statuses.
 */
async function statuses(trustProxy: string): Promise<number[]> {
  const bed = await startTestBed({ config: { rates, trustProxy } });
  const body = { email: 'nobody@example.test', password: 'not this one' };
  const signIn = async (client: string) =>
    (await bed.api('POST', '/v1/auth/sign-in', { key: null, body, headers: { 'x-forwarded-for': client } })).status;
  const found: number[] = [];
  for (const client of ['203.0.113.1', '203.0.113.1', '203.0.113.1', '203.0.113.2']) found.push(await signIn(client));
  return found;
}

describe('X-Forwarded-For', () => {
  it('of a trusted proxy names the client that sign-in is limited by', async () => {
    assert.deepEqual(await statuses('127.0.0.1'), [401, 401, 429, 401]);
  });

  it('of anybody else is not believed', async () => {
    assert.deepEqual(await statuses(''), [401, 401, 429, 429]);
  });
});
