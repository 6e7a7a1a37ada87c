// Tests the tickets that open terminals: who gets one, what it opens, and when it is refused.
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { describe, it } from 'node:test';
import { sql } from 'kysely';
import { insertKey } from '../src/api-keys/store.ts';
import { keepHouse } from '../src/reconcilers/housekeeping.ts';
import { until } from './support/postgres.ts';
import { startTerminalBed } from './support/terminal-bed.ts';
import { connect, refusal, type TerminalClient, tryConnect } from './support/terminal-client.ts';
import { TEST_ORIGIN } from './support/test-bed.ts';

const { bed, api, plane, second, db, terminals, machine, other, stopped, session, ticketOf, clients } =
  await startTerminalBed();

describe('a terminal ticket', () => {
  it('says what it opens, is never stored itself and never logged', async () => {
    const { ticket, machine_id, terminal_id, ws_path, expires_at } = await session();
    assert.match(ticket, /^sbt_[\w-]{43}$/);
    assert.deepEqual([machine_id, ws_path], [machine, `/v1/machines/${machine}/terminal`]);
    const leftMs = Date.parse(expires_at) - Date.now();
    assert(leftMs > 0 && leftMs <= 31_000, `${leftMs} ms`);
    const { rows } = await sql<{ row: string }>`select t::text as row from terminal_tickets t`.execute(db);
    assert.equal(rows.length, 1);
    assert(!JSON.stringify(rows).includes(ticket.slice(4)));
    const client = await connect(plane, machine, ticket);
    client.socket.close();
    await client.ends();
    assert.equal((await refusal(plane, machine, ticket)).status, 401);
    await until(() => bed.logged().includes('terminal connection ended'), 'the end is logged');
    assert(bed.logged().includes('/v1/machines/:id/terminal"'));
    assert(!bed.logged().includes(ticket.slice(4, 20)));
    assert(terminal_id in Object.fromEntries(terminals.all));
  });

  it('opens one connection when 100 spend it at once, on two replicas', async () => {
    const ticket = await ticketOf();
    const answers = await Promise.all(
      Array.from({ length: 100 }, (_, index) => tryConnect(index % 2 === 0 ? plane : second, machine, ticket)),
    );
    const opened = answers.filter((answer) => 'socket' in answer);
    clients.push(...(opened as TerminalClient[]));
    assert.equal(opened.length, 1);
    const refused = answers.filter((answer) => !('socket' in answer));
    assert(
      refused.every((answer) => 'status' in answer && answer.status === 401 && answer.json.code === 'unauthenticated'),
    );
    assert.equal(terminals.calls.filter((name) => name === 'terminals.open').length, 1);
  });

  it('is 401 when it is absent, malformed, unknown, spent, expired or of another machine', async () => {
    const spent = await ticketOf();
    clients.push(await connect(plane, machine, spent));
    const expired = await ticketOf();
    await sql`update terminal_tickets set expires_at = now() - interval '1 millisecond'`.execute(db);
    const elsewhere = await ticketOf({}, other);
    const cases = {
      absent: undefined,
      empty: '',
      malformed: 'x',
      unknown: `sbt_${'A'.repeat(43)}`,
      spent,
      expired,
      elsewhere,
    };
    const texts = new Set<string>();
    for (const [name, ticket] of Object.entries(cases)) {
      const { status, json, headers } = await refusal(plane, machine, ticket);
      assert.deepEqual([status, json.code], [401, 'unauthenticated'], name);
      assert(headers['x-request-id'] && headers['www-authenticate'], name);
      texts.add(json.detail);
    }
    assert.equal(texts.size, 1, 'nobody learns which');
    assert.equal((await refusal(plane, 'nonsense', spent)).status, 401);
    assert.equal((await refusal(plane, randomUUID(), spent)).status, 401);
    clients.push(await connect(plane, other, elsewhere));
    assert.equal(
      (await api('GET', `/v1/machines/${machine}/terminal?ticket=a&ticket=b&x=1`, { key: null })).status,
      401,
    );
  });

  it('needs no WebSocket to be refused, and is no API key', async () => {
    const path = (id: string, ticket: string) => `/v1/machines/${id}/terminal?ticket=${ticket}`;
    const ticket = await ticketOf();
    const plain = await api('GET', path(machine, ticket), { key: null });
    assert.deepEqual([plain.status, plain.json.code], [400, 'validation_error']);
    assert.match(plain.json.detail, /Upgrade: websocket/);
    assert.equal((await api('GET', path(machine, ticket), { key: null })).status, 401, 'spent');
    assert.equal((await api('GET', path(stopped, await ticketOf({}, stopped)), { key: null })).status, 409);
    assert.equal((await api('HEAD', path(machine, await ticketOf()), { key: null })).status, 405);
    assert.equal((await api('GET', `/v1/machines/${machine}`, { key: await ticketOf() })).status, 401);
    const unknown = await api('GET', `${path(machine, await ticketOf())}&more=1`, { key: null });
    assert.deepEqual([unknown.status, unknown.json.code], [400, 'validation_error']);
  });

  it('is spent before the state of the machine is checked', async () => {
    const ticket = await ticketOf({}, stopped);
    const first = await refusal(plane, stopped, ticket);
    assert.deepEqual([first.status, first.json.code], [409, 'conflict']);
    assert.match(first.json.detail, /stopped/);
    assert.equal((await refusal(plane, stopped, ticket)).status, 401);
  });

  it('is 403 for a page of another site, and spent; our own pages and programs pass', async () => {
    for (const origin of ['https://evil.example', 'null', 'http://127.0.0.1']) {
      const ticket = await ticketOf();
      const { status, json } = await refusal(plane, machine, ticket, { headers: { origin } });
      assert.deepEqual([status, json.code], [403, 'forbidden'], origin);
      assert.equal((await refusal(plane, machine, ticket)).status, 401);
    }
    const { status } = await refusal(plane, stopped, await ticketOf({}, stopped), {
      headers: { origin: 'https://x.example' },
    });
    assert.equal(status, 403, 'before the state');
    const { address } = plane;
    for (const origin of [TEST_ORIGIN, `http://${address.host}:${address.port}`, `http://localhost:${address.port}`]) {
      clients.push(await connect(plane, machine, await ticketOf(), { headers: { origin } }));
    }
  });

  it('ends with the credential that it was made with (RES-13)', async () => {
    const key = await insertKey(db, bed.accountId, 'full', 'soon gone');
    const { ticket } = await session({}, machine, key);
    await db.deleteFrom('api_keys').where('name', '=', 'soon gone').execute();
    assert.equal((await refusal(plane, machine, ticket)).status, 401);
    const cookie = await bed.session();
    const bySession = await api('POST', `/v1/machines/${machine}/terminal-session`, {
      key: null,
      headers: { cookie, origin: TEST_ORIGIN },
    });
    assert.equal(bySession.status, 201);
    await db.deleteFrom('sessions').execute();
    assert.equal((await refusal(plane, machine, bySession.json.ticket)).status, 401);
  });

  it('is removed by housekeeping when nobody spent it', async () => {
    await ticketOf();
    const fresh = await session();
    await sql`update terminal_tickets set expires_at = now() - interval '1 second' where terminal_id <> ${fresh.terminal_id}`.execute(
      db,
    );
    assert.equal(await keepHouse(plane.app), true);
    const left = await db.selectFrom('terminal_tickets').select('terminal_id').execute();
    assert.deepEqual(left, [{ terminal_id: fresh.terminal_id }]);
  });
});

describe('a request for a ticket', () => {
  it('is 404 for an absent and a foreign machine, and 403 with a key of scope read', async () => {
    const ask = (id: string, key: string) => api('POST', `/v1/machines/${id}/terminal-session`, { key });
    const [absent, foreign] = [await ask(randomUUID(), bed.keys.full), await ask(machine, bed.keys.other)];
    assert.deepEqual([absent.status, foreign.status, absent.text], [404, 404, foreign.text]);
    assert.equal((await ask(machine, bed.keys.read)).status, 403);
  });

  it('is 400 for a size out of range, fields that exclude each other, and too much of them', async () => {
    const refused = async (body: object) => {
      const { status, json } = await api('POST', `/v1/machines/${machine}/terminal-session`, { body });
      assert.deepEqual([status, json.code], [400, 'validation_error'], JSON.stringify(body).slice(0, 80));
      return json.detail;
    };
    for (const cols of [0, 1001, 1.5, '80', null]) assert.match(await refused({ cols }), /cols/);
    for (const opens of [{ command: ['sh'] }, { env: {} }, { cwd: '/' }, { user: 'root' }]) {
      const [name] = Object.keys(opens);
      const detail = await refused({ terminal_id: randomUUID(), ...opens });
      assert.match(detail, new RegExp(`terminal_id and ${name} exclude each other`));
    }
    assert.match(await refused({ terminal_id: 'x' }), /UUID/);
    assert.match(await refused({ command: [] }), /command/);
    assert.match(await refused({ env: { A: 'x'.repeat(70_000) } }), /65536 bytes/);
    assert.match(await refused({ shell: 'zsh' }), /shell/);
  });
});
