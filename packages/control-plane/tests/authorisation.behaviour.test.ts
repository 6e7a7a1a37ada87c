// Calls every operation of the OpenAPI documents, that of the public API and that of the operator's routes, with every
// credential that must be refused, and with those that must be accepted. A new operation is tested automatically. A new
// kind of path parameter or credential makes this test fail until it is added here.
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { describe, it } from 'node:test';
import { ERROR_TABLE } from '@sandbar/contract/errors.ts';
import { sql } from 'kysely';
import { generateKey } from '../src/api-keys/key.ts';
import { insertKey } from '../src/api-keys/store.ts';
import { setPassword } from '../src/auth/password.ts';
import { addEntry } from '../src/billing/ledger.ts';
import { inTransaction } from '../src/db/transaction.ts';
import { describeApis } from '../src/openapi/describe.ts';
import { FAKE_HOST_ID } from './support/fake-host.ts';
import { FakeTerminal, FakeTerminals } from './support/fake-terminals.ts';
import { guestEntry, playFile } from './support/guest-files.ts';
import { playStream } from './support/guest-stream.ts';
import { PUBLIC_OPERATIONS } from './support/public-operations.ts';
import { type CallOptions, cookieOf, startTestBed, TEST_PASSWORD } from './support/test-bed.ts';

const bed = await startTestBed();
const { api, host, keys, plane, accountId } = bed;
const { db } = plane.app;
const origin = `http://${plane.address.host}:${plane.address.port}`;
const terminals = new FakeTerminals(host);
const revoked = await insertKey(db, accountId, 'full', 'revoked');
await db.deleteFrom('api_keys').where('name', '=', 'revoked').execute();
const expired = await insertKey(db, accountId, 'full', 'expired', new Date(0));
await db.updateTable('accounts').set({ is_owner: true }).where('id', '=', accountId).execute();
const session = await bed.session();
const asSession = (headers: Record<string, string> = { origin }): CallOptions => ({
  key: null,
  headers: { cookie: session, ...headers },
});

host.guestCalls['ports.list'] = () => ({ ports: [] });
host.guestCalls['files.entry'] = () => guestEntry();
host.guestCalls['files.list'] = () => ({ entries: [], more: false });
host.guestStreams['files.read'] = () => playFile(Buffer.from('x'), {});
for (const name of ['files.archive', 'files.watch'] as const) {
  host.guestStreams[name] = () => {
    const stream = playStream();
    stream.finish({});
    return stream;
  };
}

type Operation = { operationId: string; security: { bearer?: string[]; session?: [] }[] };
type Document = { paths: Record<string, Record<string, Operation>> };
const { api: publicDocument, admin: adminDocument } = (await describeApis()) as { api: Document; admin: Document };
const paths = { ...publicDocument.paths, ...adminDocument.paths };
const operations = Object.entries(paths).flatMap(([path, methods]) =>
  Object.entries(methods).map(([method, operation]) => ({ path, method: method.toUpperCase(), ...operation })),
);

/** Makes one resource for each path parameter, such as `{machine}`, owned by the account of `key`. */
async function makeResources(key: string, ownerId: string) {
  const machine = (await api('POST', '/v1/machines', { key })).json.id;
  const exec = (await api('POST', `/v1/machines/${machine}/execs`, { key, body: { command: 'sleep' } })).json.id;
  const snapshot = (await api('POST', `/v1/machines/${machine}/snapshots`, { key })).json.id;
  const { id } = (await api('POST', '/v1/machines', { key })).json;
  const volume = (await api('DELETE', `/v1/machines/${id}?preserve_storage=true`, { key })).json.root_volume_id;
  const terminal = randomUUID();
  terminals.all.set(terminal, new FakeTerminal({ id: terminal, cols: 80, rows: 24, env: {}, idle_sec: 600 }));
  await insertKey(db, ownerId, 'read', 'a key to revoke');
  const apiKey = await db
    .selectFrom('api_keys')
    .select('id')
    .where('account_id', '=', ownerId)
    .where('name', '=', 'a key to revoke')
    .executeTakeFirstOrThrow();
  const bonus = { accountId: ownerId, kind: 'bonus', amountMicros: 1, note: '' } as const;
  await inTransaction(db, (tx) => addEntry(tx, bonus));
  const entry = await db.selectFrom('ledger').select('id').where('account_id', '=', ownerId).executeTakeFirstOrThrow();
  const ids = { account: other.id, host: FAKE_HOST_ID };
  return { machine, exec, volume, snapshot, terminal, apiKey: apiKey.id, entry: entry.id, ...ids };
}
type Resources = Awaited<ReturnType<typeof makeResources>>;
const other = await db
  .selectFrom('accounts')
  .select('id')
  .where('email', '=', 'other@example.test')
  .executeTakeFirstOrThrow();
await setPassword(db, other.id, TEST_PASSWORD);
const otherSignIn = await api('POST', '/v1/auth/sign-in', {
  key: null,
  body: { email: 'other@example.test', password: TEST_PASSWORD },
});
const otherSession = cookieOf(otherSignIn.headers);
const unconfirmedSession = await bed.session();
const longAgo = sql<Date>`now() - interval '15 minutes 1 second'`;
const newest = db.selectFrom('sessions').select('id').orderBy('id', 'desc').limit(1);
await db.updateTable('sessions').set({ confirmed_at: longAgo }).where('id', '=', newest).execute();
const own = await makeResources(keys.full, accountId);
const foreign = await makeResources(keys.other, other.id);
const absent: Resources = {
  machine: randomUUID(),
  exec: randomUUID(),
  volume: randomUUID(),
  snapshot: randomUUID(),
  terminal: randomUUID(),
  apiKey: randomUUID(),
  entry: randomUUID(),
  account: randomUUID(),
  host: randomUUID(),
};

/** Whether the operations of a path take the path of a file in their query. */
const isOfFile = (path: string): boolean => /\/files(\/(entry|content|archive|watch))?$/.test(path);

/** Whether only an operator may use the operations of a path. */
const isForOperator = (path: string): boolean => path.startsWith('/admin/v1/');

function fill(path: string, resources: Resources): string {
  const kinds: Record<string, string> = {
    machines: resources.machine,
    volumes: resources.volume,
    snapshots: resources.snapshot,
    'api-keys': resources.apiKey,
    billing: resources.entry,
    'admin/accounts': resources.account,
    'admin/hosts': resources.host,
  };
  const [, , first = '', second = ''] = path.split('/');
  const filled = path
    .replace('{id}', kinds[isForOperator(path) ? `admin/${second}` : first] ?? 'no kind')
    .replace('{exec_id}', resources.exec)
    .replace('{port}', '8000')
    .replace('{terminal_id}', resources.terminal);
  return isOfFile(path) ? `${filled}?path=/a` : filled;
}

/** Reads that open a WebSocket. Browsers let pages of every site do that, with the session cookie. */
const WEB_SOCKETS = ['connectPort'];

const BODIES: Record<string, object> = {
  createExec: { command: 'true' },
  signalExec: { signal: 'INT' },
  createApiKey: { name: 'x', scope: 'read' },
  lookUpDeviceLogin: { user_code: 'WDJB-MJHT' },
  approveDeviceLogin: { user_code: 'WDJB-MJHT', scope: 'read' },
  denyDeviceLogin: { user_code: 'WDJB-MJHT' },
  updatePort: { access: 'public' },
  attachVolume: { machine_id: randomUUID() },
  createDirectory: { path: '/a' },
  topUp: { amount: '25' },
  moveFile: { from: '/a', to: '/b' },
  createAccount: { email: 'new@example.test' },
  changeTier: { tier: 'enterprise' },
  overrideLimits: { machines: null },
  creditAccount: { eur: '5', as: 'bonus' },
  confirmPassword: { password: 'not this one' },
  changePassword: { current_password: 'not this one', new_password: 'another password' },
};
/** The parameters of the query that an operation needs. */
const QUERIES: Record<string, string> = { writeExecStdin: '?offset=0' };
const bodyOf = (operationId: string): CallOptions =>
  BODIES[operationId] === undefined ? {} : { body: BODIES[operationId] };

describe('every operation that needs a credential', () => {
  for (const { path, method, operationId, security } of operations) {
    if (security.length === 0) continue;
    const query = QUERIES[operationId] ?? '';
    const url = fill(path, own) + query;
    const scope = security.find((entry) => entry.bearer)?.bearer?.[0] ?? 'session';

    it(`${operationId} is 401 without one, and with one that is malformed, unknown, expired or revoked`, async () => {
      for (const headers of [
        {},
        { authorization: 'Bearer nonsense' },
        { authorization: `Bearer ${generateKey()}` },
        { authorization: `Bearer ${revoked}` },
        { authorization: `Bearer ${expired}` },
        { authorization: `Basic ${btoa('a:b')}` },
        { authorization: `Bearer ${keys.full}x` },
        { cookie: 'sandbar_session=nonsense.nonsense', origin },
        // A valid session must not rescue a request whose API key is revoked.
        { authorization: `Bearer ${revoked}`, cookie: session, origin },
      ]) {
        const answer = await api(method, url, { key: null, headers: headers as Record<string, string> });
        assert.deepEqual([answer.status, answer.json?.code], [401, 'unauthenticated'], Object.keys(headers).join());
        assert.match(answer.headers.get('www-authenticate') ?? '', /^Bearer/);
      }
    });

    it(`${operationId} looks at the credential before anything else`, async () => {
      const answer = await api(method, `${fill(path, { ...absent, machine: 'x' })}?nonsense=1`, {
        key: null,
        ...(method === 'GET' ? {} : { rawBody: '{', headers: { 'content-type': 'text/x' } }),
      });
      assert.equal(answer.status, 401);
    });

    it(`${operationId} takes ${scope}`, async () => {
      const byRead = await api(method, url, { key: keys.read, ...(method === 'GET' ? {} : { rawBody: '{' }) });
      if (scope === 'read') assert.equal(byRead.status, 200, byRead.text);
      else assert.deepEqual([byRead.status, byRead.json.code], [403, 'forbidden']);
      if (scope !== 'session') return;
      const byFull = await api(method, url, bodyOf(operationId));
      assert.deepEqual([byFull.status, byFull.json.code], [403, 'forbidden']);
    });

    it(`${operationId} takes a session, from our own pages only`, async () => {
      if (method === 'GET' && !WEB_SOCKETS.includes(operationId)) {
        assert.equal((await api(method, url, asSession({}))).status, 200);
        return;
      }
      for (const headers of [{}, { origin: 'https://evil.example' }, { origin: 'null' }]) {
        const answer = await api(method, url, {
          ...bodyOf(operationId),
          ...asSession(headers as Record<string, string>),
        });
        assert.deepEqual([answer.status, answer.json.code], [403, 'forbidden'], JSON.stringify(headers));
      }
    });

    if (isForOperator(path)) {
      it(`${operationId} is 403 for a session of an account that is no operator`, async () => {
        const answer = await api(method, url, {
          ...bodyOf(operationId),
          ...asSession({ cookie: otherSession, origin }),
        });
        assert.deepEqual([answer.status, answer.json.code], [403, 'forbidden']);
        assert.match(answer.json.detail, /Only an operator/);
      });

      it(`${operationId} is 403 for a session of a suspended operator`, async () => {
        const set = (suspended_at: Date | null) =>
          db.updateTable('accounts').set({ suspended_at }).where('id', '=', accountId).execute();
        await set(new Date());
        const answer = await api(method, url, { ...bodyOf(operationId), ...asSession() }).finally(() => set(null));
        assert.deepEqual([answer.status, answer.json.code], [403, 'forbidden']);
        assert.match(answer.json.detail, /The account is suspended/);
      });

      it(`${operationId} asks for the password 15 minutes after it was checked`, async () => {
        const answer = await api(method, url, {
          ...bodyOf(operationId),
          ...asSession({ cookie: unconfirmedSession, origin }),
        });
        assert.deepEqual([answer.status, answer.json.code], [403, 'password_required']);
      });
    }

    if (!path.includes('{') || operationId === 'retiredExec') continue;

    if (isForOperator(path)) {
      it(`${operationId} answers 404 for an absent id`, async () => {
        const answer = await api(method, fill(path, absent), { ...bodyOf(operationId), ...asSession() });
        assert.deepEqual([answer.status, answer.json.code], [404, 'not_found']);
      });
      continue;
    }

    it(`${operationId} answers another account’s id like an absent one`, async () => {
      const credential = scope === 'session' ? asSession() : {};
      const ask = (resources: Resources) =>
        api(method, fill(path, resources) + query, { ...bodyOf(operationId), ...credential });
      const [theirs, nobodys] = [await ask(foreign), await ask(absent)];
      assert.deepEqual([theirs.status, theirs.text], [404, nobodys.text]);
      assert.equal(nobodys.status, 404);
      const names = (answer: { headers: Headers }) => [...answer.headers.keys()].sort();
      assert.deepEqual(names(theirs), names(nobodys));
      if (scope === 'session') return;
      const byStranger = await api(method, url, { key: keys.other, ...bodyOf(operationId) });
      assert.deepEqual([byStranger.status, byStranger.text], [404, nobodys.text]);
    });
  }
});

describe('the operations without a credential', () => {
  it('are those that hand one out, and the one whose ticket is its credential', () => {
    assert.deepEqual(
      operations.filter(({ security }) => security.length === 0).map(({ operationId }) => operationId),
      PUBLIC_OPERATIONS,
    );
  });
});

describe('every code of the error table', () => {
  it('is asserted by a test of behaviour', () => {
    const tests = readdirSync(import.meta.dirname)
      .filter((name) => name.endsWith('.test.ts') && !name.startsWith('authorisation'))
      .map((name) => readFileSync(`${import.meta.dirname}/${name}`, 'utf8'))
      .join('\n');
    const missing = Object.keys(ERROR_TABLE).filter(
      (code) => !tests.includes(`'${code}'`) && code !== 'unauthenticated',
    );
    assert.deepEqual(missing, []);
  });
});
