// Checks that the service does what its OpenAPI document says. schemathesis generates valid requests, invalid requests
// and sequences of requests for every operation from the document, and checks each answer against it. The test uses an
// account of its own, so that the generated requests cannot touch machines of other tests.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import path from 'node:path';
import { text } from 'node:stream/consumers';
import { after, describe, it, type TestContext } from 'node:test';
import type { NewAccount } from '@sandbar/contract/admin.ts';
import { homePaths } from '@sandbar/contract/home.ts';
import type { Machine } from '@sandbar/contract/machine.ts';
import type { Volume } from '@sandbar/contract/volume.ts';
import { postAdmin } from '@sandbar/service/admin-client.ts';
import { BASE_URL, HOME } from '../e2e/support/service.ts';

const FOLDER = import.meta.dirname;
/** Path of a Python interpreter with schemathesis. `npm test` installs it and sets the variable. */
const PYTHON = process.env.SANDBAR_TEST_SCHEMATHESIS;
/**
 * The quotas of the test's account are low, so that a create can succeed but most are refused: each accepted create boots
 * a machine, which takes long. The rate limits are high, so that they do not refuse the test's requests.
 */
const LIMITS = { machines: 3, vcpus: 4, memory_mb: 3072, storage_gb: 60, rate_mutating: 10_000, rate_exec: 10_000 };

const account = await admin<NewAccount>('/admin/accounts', {
  email: 'conformance@example.test',
  tier: 'enterprise',
});
await admin(`/admin/accounts/${account.account_id}/limits`, LIMITS);

after(destroyMachines);

describe('schemathesis finds no answer that contradicts the OpenAPI document', () => {
  const asProgram = [`Authorization: Bearer ${account.api_key}`];

  it('in single requests', (t) => run(t, asProgram, ['--phases', 'examples,coverage,fuzzing']));

  it('in sequences of requests', async (t) => {
    await destroyMachines();
    await run(t, asProgram, ['--phases', 'stateful']);
  });

  it('in the operations of the dashboard, with the cookie of a session', async (t) => {
    const asPerson = [`Cookie: ${await signIn()}`, `Origin: ${BASE_URL}`];
    const sessionOnly = '^/v1/(api-keys|account|auth/((change|confirm)-password|device/(lookup|approve|deny)))';
    // The --header option adds the cookie to every request. So schemathesis cannot test requests without it, and must
    // not try.
    const asGiven = ['--generation-with-security-parameters', 'false'];
    await run(t, asPerson, [...asGiven, '--include-path-regex', sessionOnly]);
    // signOut runs last and alone, because it ends the session that the other operations need.
    await run(t, asPerson, [...asGiven, '--include-operation-id', 'signOut']);
  });
});

/** Runs schemathesis with all checks and the given headers. Fails with its output when it has findings. */
async function run(t: TestContext, headers: readonly string[], options: readonly string[]): Promise<void> {
  assert(PYTHON, 'SANDBAR_TEST_SCHEMATHESIS is not set: run this test through npm test');
  const args = [
    ...['-m', 'schemathesis.cli', '--config-file', path.join(FOLDER, 'schemathesis.toml')],
    ...['run', `${BASE_URL}/openapi.json`, '--checks', 'all'],
    ...headers.flatMap((header) => ['--header', header]),
    ...options,
  ];
  const env = { ...process.env, SCHEMATHESIS_HOOKS: path.join(FOLDER, 'hooks.py'), PYTHONDONTWRITEBYTECODE: '1' };
  // schemathesis writes files to its working directory. The data directory is removed after the tests.
  const child = spawn(PYTHON, args, { cwd: HOME, env, signal: t.signal, stdio: ['ignore', 'pipe', 'pipe'] });
  const [output, [code]] = await Promise.all([
    Promise.all([text(child.stdout), text(child.stderr)]).then((parts) => parts.join('')),
    once(child, 'close'),
  ]);
  assert.equal(code, 0, output);
  const cases = Number(/(\d+) generated/.exec(output)?.[1]);
  assert(cases > 0, output);
  t.diagnostic(`${cases} cases`);
}

/** Destroys all machines and volumes of the account. Uses a new API key: schemathesis may have revoked the others. */
async function destroyMachines(): Promise<void> {
  const body = { account_id: account.account_id, scope: 'full', name: 'clean-up' };
  const { api_key: key } = await admin<{ api_key: string }>('/admin/api-keys', body);
  const { machines } = await callAs<{ machines: Machine[] }>(key, 'GET', '/v1/machines');
  for (const { id } of machines) await callAs(key, 'DELETE', `/v1/machines/${id}?delete_snapshots=true`);
  const { volumes } = await callAs<{ volumes: Volume[] }>(key, 'GET', '/v1/volumes');
  for (const { id } of volumes) await callAs(key, 'DELETE', `/v1/volumes/${id}`);
}

/** Signs in to the dashboard and returns the session cookie. */
async function signIn(): Promise<string> {
  const response = await fetch(`${BASE_URL}/v1/auth/sign-in`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ email: account.email, password: account.password }),
  });
  assert.equal(response.status, 200);
  return response.headers.getSetCookie()[0]?.split(';')[0] ?? '';
}

async function callAs<T>(key: string, method: string, path: string): Promise<T> {
  const response = await fetch(`${BASE_URL}${path}`, { method, headers: { authorization: `Bearer ${key}` } });
  const answer = await response.text();
  assert(response.ok, `${method} ${path}: ${response.status} ${answer}`);
  return (answer === '' ? undefined : JSON.parse(answer)) as T;
}

/** Sends a request to the operator's socket, as `sandbar admin` does. */
async function admin<T = unknown>(path: string, body: object): Promise<T> {
  const answer = await postAdmin(homePaths(HOME).adminSocket, path, body);
  assert.equal(answer.status, 200, `${path}: ${JSON.stringify(answer.body)}`);
  return answer.body as T;
}
