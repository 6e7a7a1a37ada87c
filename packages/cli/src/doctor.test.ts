// Tests `sandbar doctor` against a small HTTP server on the admin socket, which stands in for the control plane.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { after, before, beforeEach, describe, it } from 'node:test';
import type { Audit, AuditFinding, AuditFix } from '@sandbar/contract/admin.ts';
import { homePaths } from '@sandbar/contract/home.ts';
import { runCli } from './test-support.ts';

const home = mkdtempSync(join(tmpdir(), 'sandbar-doctor-'));

const clean: Audit = {
  findings: [],
  not_looked_at: [],
  looked_at: { hosts: 1, machines: 2, volumes: 0, snapshots: 0, accounts: 3 },
};
const stray: AuditFinding = {
  area: 'machine',
  host_id: 'h1',
  subject: 'm1',
  detail: 'Its host has it, and no account does.',
  fix: 'remove it from its host',
};
const odd: AuditFinding = { ...stray, area: 'ledger', host_id: null, subject: 'e1', detail: 'It is odd.', fix: null };

let server: Server;
let calls: string[];
let answer: { status: number; body: Audit | AuditFix | object };

before(async () => {
  const { adminSocket } = homePaths(home);
  mkdirSync(dirname(adminSocket), { recursive: true });
  server = createServer(async (request, response) => {
    await request.toArray();
    calls.push(`${request.method} ${request.url}`);
    response.writeHead(answer.status, { 'content-type': 'application/json' }).end(JSON.stringify(answer.body));
  }).listen(adminSocket);
  await once(server, 'listening');
});
after(() => {
  server.close();
  rmSync(home, { recursive: true, force: true });
});
beforeEach(() => {
  calls = [];
  answer = { status: 200, body: clean };
});

const doctor = (args: string[] = [], env: Record<string, string> = {}) =>
  runCli(['doctor', ...args], { ...process.env, SANDBAR_HOME: home, ...env });

describe('sandbar doctor', () => {
  it('without findings it prints one line and exits with 0', async () => {
    const { code, stdout } = await doctor();
    const line =
      'Looked at 1 host, 2 machines, 0 volumes, 0 snapshots, 3 accounts: all is well with what was looked at.\n';
    assert.deepEqual([code, stdout, calls], [0, line, ['GET /admin/audit']]);
  });

  it('prints each finding with the repair that --fix would do, and exits with 1', async () => {
    answer.body = { ...clean, findings: [stray, odd] };
    const { code, stdout } = await doctor();
    assert.equal(code, 1);
    assert.deepEqual(stdout.split('\n').slice(0, 3), [
      'wrong   machine m1: Its host has it, and no account does. --fix: remove it from its host.',
      'wrong   ledger e1: It is odd. Nothing can be done safely.',
      'Looked at 1 host, 2 machines, 0 volumes, 0 snapshots, 3 accounts: 2 findings.',
    ]);
  });

  it('--fix prints its repairs, and the exit code depends on what is left', async () => {
    const fixed = [{ ...stray, did: 'removed it from its host' }];
    answer.body = { ...clean, fixed };
    const mended = await doctor(['--fix']);
    assert.equal(mended.code, 0);
    const line = 'mended  machine m1: Its host has it, and no account does. Done: removed it from its host.';
    assert.equal(mended.stdout.split('\n')[0], line);
    answer.body = { ...clean, fixed, findings: [odd] };
    assert.equal((await doctor(['--fix'])).code, 1);
    assert.deepEqual(calls, ['POST /admin/audit/fix', 'POST /admin/audit/fix']);
  });

  it('--json prints the answer unchanged', async () => {
    answer.body = { ...clean, findings: [stray] };
    const { code, stdout } = await doctor(['--json']);
    assert.deepEqual([code, JSON.parse(stdout)], [1, answer.body]);
  });

  it('exits with 2 when a host or the service could not be checked', async () => {
    answer.body = { ...clean, not_looked_at: [{ host_id: 'h2', why: 'it is away' }] };
    const away = await doctor();
    assert.deepEqual([away.code, away.stdout.split('\n')[0]], [2, 'unseen  host h2: it is away']);
    answer.body = { ...answer.body, findings: [stray] };
    assert.equal((await doctor()).code, 1, 'a finding is told first');
    answer = { status: 503, body: { code: 'database_unavailable', detail: 'The database does not answer now.' } };
    const refused = await doctor();
    assert.deepEqual([refused.code, refused.stdout], [2, '']);
    assert.match(refused.stderr, /^sandbar: database_unavailable: .*\n$/);
    const absent = await doctor([], { SANDBAR_HOME: join(home, 'absent') });
    assert.equal(absent.code, 2);
    assert.match(absent.stderr, /^sandbar: .*is npm start running.*\n$/);
  });

  it('a wrong command line prints one line, exits with 2 and sends no request', async () => {
    for (const wrong of [['--mend'], ['now']]) {
      const { code, stderr } = await doctor(wrong);
      assert.equal(code, 2);
      assert.match(stderr, /^sandbar: .+\n$/);
    }
    assert.deepEqual(calls, []);
  });
});
