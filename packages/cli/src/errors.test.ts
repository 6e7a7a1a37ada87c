// Tests how errors of the service and of the command line are shown, and the exit codes.
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { ERROR_TABLE, type ErrorCode } from '@sandbar/contract/errors.ts';
import { errorOf } from '@sandbar/sdk/service-errors.ts';
import { exitCodeOfError } from './exit-codes.ts';
import { inWordsOfCli } from './option-names.ts';
import { ABSENT, api, MACHINE, sandbar, useStandIn } from './testing/api-stand-in.ts';

useStandIn();

describe('an error', () => {
  it('is one line with its code and what to do next', async () => {
    const { code, stderr } = await sandbar(['machine', 'get', ABSENT]);
    assert.deepEqual(
      [code, stderr],
      [5, 'sandbar: not_found: no such machine; sandbar machine ls lists what there is\n'],
    );
  });

  it('names the option and not the field of the API', async () => {
    const detail = 'memory_mb must be an integer from 128 to 1048576.';
    api.refusal = { status: 400, code: 'validation_error', detail };
    const { code, stderr } = await sandbar(['machine', 'create', '--memory', '1']);
    assert.equal(code, 2);
    const said = '--memory must be an integer from 128 to 1048576; sandbar machine create --help tells more';
    assert.equal(stderr, `sandbar: validation_error: ${said}\n`);
  });

  it('says how to go on when a key may not manage keys', async () => {
    api.refusal = { status: 403, code: 'forbidden' };
    for (const args of [
      ['key', 'ls'],
      ['key', 'create', '--name', 'ci'],
      ['key', 'rm', 'ci'],
    ]) {
      const { code, stderr } = await sandbar(args);
      assert.equal(code, 4);
      assert.match(stderr, /^sandbar: a key cannot manage keys; .* in the dashboard, .* sandbar login\n$/);
    }
  });

  it('names npm start and sandbar login when the service does not run', async () => {
    const { code, stderr } = await sandbar(['image', 'ls'], { env: { SANDBAR_BASE_URL: 'http://127.0.0.1:1' } });
    assert.equal(code, 1);
    assert.match(stderr, /^sandbar: .*127\.0\.0\.1:1.*npm start or sandbar up, or .* sandbar login URL\n$/);
  });

  it('has exit code 4 when there is no key, or an empty key', async () => {
    const { code, stderr } = await sandbar(['ls'], { env: { SANDBAR_API_KEY: '' } });
    assert.equal(code, 4);
    assert.match(stderr, /^sandbar: SANDBAR_API_KEY is set, but empty.*\n$/);
    assert.deepEqual(api.calls, []);
  });

  it('shows control characters from the API as escapes, and tables do so too', async () => {
    const name = 'a\x1b[2Jb\nc\x7f\x9b\u202e';
    const shown = 'a\\x1b[2Jb\\x0ac\\x7f\\x9b\\u202e';
    api.fields = { name, error: name, detail: name };
    for (const args of [['ls'], ['volume', 'ls'], ['snapshot', 'ls'], ['machine', 'get', MACHINE]]) {
      const { stdout, stderr } = await sandbar(args);
      for (const text of [stdout.toString(), stderr]) {
        assert.equal(text.split(shown).length, 2, args.join(' '));
        assert.doesNotMatch(text, /(?!\n)[\p{Cc}\u202e]/u);
      }
    }
    const { stderr } = await sandbar(['machine', 'get', ABSENT]);
    assert.equal(stderr, `sandbar: not_found: ${shown}\n`);
    const { stdout } = await sandbar(['ls', '--json']);
    assert.equal(JSON.parse(stdout.toString()).machines[0].name, name);
  });
});

describe('the exit code', () => {
  const CODES: Partial<Record<ErrorCode, number>> = {
    validation_error: 2,
    unauthenticated: 4,
    forbidden: 4,
    password_required: 4,
    sign_in_required: 4,
    not_found: 5,
    quota_exceeded: 6,
    rate_limited: 6,
    insufficient_balance: 6,
    fleet_capacity: 6,
  };
  for (const [code, { status }] of Object.entries(ERROR_TABLE)) {
    it(`of ${code} is ${CODES[code as ErrorCode] ?? 1}`, () => {
      const error = errorOf({ status, code, detail: '', requestId: null, retryAfterSec: null });
      assert.equal(exitCodeOfError(error), CODES[code as ErrorCode] ?? 1);
    });
  }
});

describe('the fields in a message', () => {
  for (const [called, detail, shown] of [
    ['run', 'name must be a string of at most 255 characters.', '--name must be a string of at most 255 characters.'],
    ['run', 'env.A must be a string.', '--env A must be a string.'],
    ['exec', 'argv.0 must be a string.', 'the command must be a string.'],
    ['usage', 'to must not be before from. It is now.', '--to must not be before --from. It is now.'],
    ['run', 'snapshot_id and root_volume_id exclude each other.', '--snapshot and --root-volume exclude each other.'],
    ['machine rm', 'or with the machine by delete_snapshots=true.', 'or with the machine by --delete-snapshots.'],
    ['ports', 'expires_in_sec must be an integer.', '--expires-in must be an integer.'],
    ['run', 'There is a new_field.', 'There is a new_field.'],
    ['run', 'The name must stay.', 'The name must stay.'],
  ] as const) {
    it(`become options: ${shown}`, () => {
      assert.equal(inWordsOfCli('validation_error', detail, `sandbar ${called}`), shown);
    });
  }

  it('stay as they are in the message of a full quota, where they are names of quotas', () => {
    const detail = 'memory_mb is full: 1024 used, 512 requested, limit 1024.';
    assert.equal(inWordsOfCli('quota_exceeded', detail, 'sandbar run'), detail);
  });
});
