// Tests the pauses between the polls of a device login.
import assert from 'node:assert/strict';
import { beforeEach, describe, it } from 'node:test';
import { pollForKey } from './device-login.ts';
import { answerJson, startServer } from './test-support.ts';

let answers: { status: number; code?: string }[];
let pauses: number[];

const baseUrl = await startServer((_, response) => {
  const { status, code } = answers.shift() ?? assert.fail('too many polls');
  if (status === 0) response.destroy();
  else answerJson(response, status, code === undefined ? { key: 'sbr_new', name: 'n', scope: 'full' } : { code });
});

beforeEach(() => {
  pauses = [];
});

async function poll(expiresIn = 600): Promise<string> {
  let nowMs = 0;
  const code = { device_code: 'd', user_code: 'u', verification_uri: '', verification_uri_complete: '' };
  const { key } = await pollForKey(
    { ...code, expires_in: expiresIn, interval: 5 },
    {
      baseUrl,
      signal: new AbortController().signal,
      now: () => nowMs,
      pause: async (seconds) => {
        pauses.push(seconds);
        nowMs += seconds * 1000;
      },
    },
  );
  return key;
}

describe('the polls of a device login', () => {
  it('wait for the interval, and 5 s longer after each slow_down', async () => {
    const pending = { status: 400, code: 'authorization_pending' };
    const slower = { status: 400, code: 'slow_down' };
    answers = [pending, pending, slower, pending, slower, { status: 200 }];
    assert.equal(await poll(), 'sbr_new');
    assert.deepEqual(pauses, [5, 5, 5, 10, 10, 15]);
  });

  it('become less frequent while the service does not answer', async () => {
    answers = [{ status: 0 }, { status: 503, code: 'database_unavailable' }, { status: 200 }];
    assert.equal(await poll(), 'sbr_new');
    assert.deepEqual(pauses, [5, 10, 20]);
  });

  it('end when the code has expired, even if the service does not say so', async () => {
    answers = Array(4).fill({ status: 400, code: 'authorization_pending' });
    await assert.rejects(poll(20), /the code has expired/);
    assert.deepEqual(pauses, [5, 5, 5, 5]);
  });

  it('end when the service answers with any other error', async () => {
    answers = [{ status: 403, code: 'forbidden' }];
    await assert.rejects(poll(), /^ForbiddenError: forbidden/);
  });
});
