// Tests how a request is repeated that the service refused because the account sent too many.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ApiProblem } from '../api/client.ts';
import { withinRateLimit } from './rate-limit.ts';

test('rate limit > a refused request is sent again after the time that the answer says', async () => {
  const refusals = [
    new ApiProblem(429, 'rate_limited', '', null, { retryAfterSec: 7 }),
    new ApiProblem(429, 'rate_limited', '', null),
  ];
  const pauses: number[] = [];
  const send = async () => {
    const refusal = refusals.shift();
    if (refusal) throw refusal;
    return 'done';
  };
  assert.equal(await withinRateLimit(send, async (sec) => void pauses.push(sec)), 'done');
  assert.deepEqual(pauses, [7, 1]);
});

test('rate limit > every other failure is final', async () => {
  const conflict = new ApiProblem(409, 'conflict', 'It has snapshots.', null);
  let sent = 0;
  const send = async () => {
    sent += 1;
    throw conflict;
  };
  await assert.rejects(withinRateLimit(send), conflict);
  assert.equal(sent, 1);
});
