// Tests `sandbar admin` against a small HTTP server on the admin socket, which stands in for the control plane.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { after, before, beforeEach, describe, it } from 'node:test';
import type { AccountDetails, HostSummary, NewHostToken } from '@sandbar/contract/admin.ts';
import type { Invoice, Prices } from '@sandbar/contract/admin-billing.ts';
import { homePaths } from '@sandbar/contract/home.ts';

const CLI = new URL('../bin/sandbar.mjs', import.meta.url).pathname;
const home = mkdtempSync(join(tmpdir(), 'sandbar-admin-'));

const limit = { limit: 3, override: null };
const account: AccountDetails = {
  id: 'a1',
  email: 'a@example.test',
  tier: 'payg',
  billing_mode: 'prepaid',
  balance: '12.340000',
  is_owner: false,
  is_operator: false,
  machines: 2,
  created_at: 't',
  suspended_at: null,
  deleted_at: null,
  limits: {
    machines: { limit: 7, override: 7 },
    ...{ vcpus: limit, memory_mb: limit, storage_gb: limit, volumes: limit },
    ...{ vcpus_per_machine: limit, memory_mb_per_machine: limit },
  },
  used: { machines: 2, vcpus: 2, memory_mb: 2, storage_gb: 2, volumes: 0 },
  rates: {
    mutating: { per_sec: 2, burst: 12, override: 2 },
    exec: { per_sec: 20, burst: 100, override: null },
  },
};
const host: HostSummary = {
  id: 'h1',
  state: 'away',
  draining: true,
  name: 'rack-7',
  address: '10.0.0.7:7072',
  volumes: 0,
  snapshots: 0,
  version: '0.1.0',
  isolation: 'kvm',
  cpus: 8,
  memory_mb: 16_384,
  disk_mb: 204_800,
  disk_free_mb: 102_400,
  disk_reserve_mb: 10_240,
  reserved_vcpus: 2,
  reserved_memory_mb: 1024,
  reserved_disk_gb: 20,
  machines: 1,
  remaining: [{ kind: 'machine', id: 'm1', why: 'It is running: only a stopped machine moves.' }],
  last_seen_at: 't',
};
const prices: Prices = {
  currency: 'EUR',
  prices: {
    vcpu_hour: '0.050000',
    memory_gib_hour: '0.016000',
    storage_gib_hour: '0.000200',
    snapshot_gib_hour: '0.1',
  },
  since: 't',
};
const invoice: Invoice = {
  account_id: 'a1',
  email: 'a@example.test',
  billing_mode: 'prepaid',
  currency: 'EUR',
  month: '2026-10',
  from: 't',
  to: 't',
  is_final: true,
  opening: '1.004999',
  closing: '24.668332',
  money: [{ kind: 'top-up', entries: 2, amount: '25.000000' }],
  use: [
    { kind: 'vcpu', unit: 'vcpu_hour', quantity: '20.000000', price: '0.050000', amount: '-1.000000' },
    { kind: 'memory', unit: 'gib_hour', quantity: '20.833333', price: '0.016000', amount: '-0.333334' },
    { kind: 'storage', unit: 'gib_hour', quantity: '16.666666', price: '0.000200', amount: '-0.003333' },
  ],
};
const hostToken: NewHostToken = { id: 't1', token: 'sbh_x.y', url: 'https://sandbar.example.test', expires_at: 't' };
const made = { account_id: 'a1', api_key: 'sbr_k', email: 'a@example.test', password: 'secret' };

let server: Server;
let calls: string[];
let refusal: { status: number; body: string } | undefined;

before(async () => {
  const { adminSocket } = homePaths(home);
  mkdirSync(dirname(adminSocket), { recursive: true });
  server = createServer(async (request, response) => {
    const body = Buffer.concat(await request.toArray()).toString();
    const path = request.url ?? '';
    calls.push(`${request.method} ${path}${body === '' ? '' : ` ${body}`}`);
    const answer = (status: number, text: string) =>
      response.writeHead(status, { 'content-type': 'application/json' }).end(text);
    if (refusal) return answer(refusal.status, refusal.body);
    const list = path === '/admin/hosts' ? { hosts: [host] } : { accounts: [account] };
    if (path === '/admin/host-tokens') {
      const tokens = [{ id: 't1', created_at: 'c', expires_at: 'e' }];
      return answer(200, JSON.stringify(request.method === 'GET' ? { tokens } : hostToken));
    }
    if (path === '/admin/prices') return answer(200, JSON.stringify(prices));
    if (path.includes('/invoice')) return answer(200, JSON.stringify(invoice));
    if (request.method === 'GET') return answer(200, JSON.stringify(path.endsWith('s') ? list : account));
    if (path.startsWith('/admin/hosts')) return answer(200, JSON.stringify(host));
    if (path.endsWith('/credit')) return answer(200, JSON.stringify({ ...account, is_new: !body.includes('again') }));
    answer(200, JSON.stringify(/(accounts|password|keys)$/.test(path) ? made : account));
  }).listen(adminSocket);
  await once(server, 'listening');
});
after(() => {
  server.close();
  rmSync(home, { recursive: true, force: true });
});
beforeEach(() => {
  calls = [];
  refusal = undefined;
});

async function admin(line: string, env: Record<string, string> = {}) {
  const args = line.split(' ').filter(Boolean);
  const child = spawn(process.execPath, [CLI, 'admin', ...args], {
    env: { ...process.env, SANDBAR_HOME: home, ...env },
  });
  const [out, error, [code]] = await Promise.all([
    child.stdout.toArray(),
    child.stderr.toArray(),
    once(child, 'close'),
  ]);
  return { code, stdout: Buffer.concat(out).toString(), stderr: Buffer.concat(error).toString() };
}

describe('sandbar admin', () => {
  it('sends exactly the request of the command', async () => {
    const cases: [line: string, call: string][] = [
      ['account create --email a@b', 'POST /admin/accounts {"email":"a@b"}'],
      [
        'account create --email a@b --tier payg --billing unmetered --credit 25',
        'POST /admin/accounts {"email":"a@b","tier":"payg","billing_mode":"unmetered","credit_eur":"25"}',
      ],
      ['account list', 'GET /admin/accounts'],
      ['account show a@b', 'GET /admin/accounts/a%40b'],
      ['account tier a1 free', 'POST /admin/accounts/a1/tier {"tier":"free"}'],
      [
        'account credit a1 --eur -2 --as correction --reference r/7 --note why',
        'POST /admin/accounts/a1/credit {"eur":"-2","as":"correction","note":"why","reference":"r/7"}',
      ],
      ['account suspend a@b', 'POST /admin/accounts/a%40b/suspend {}'],
      ['account resume a1', 'POST /admin/accounts/a1/resume {}'],
      ['account delete a1 --yes', 'POST /admin/accounts/a1/delete {}'],
      [
        'account limits a1 --machines 0 --memory-mb-per-machine default --rate-exec 7',
        'POST /admin/accounts/a1/limits {"machines":0,"memory_mb_per_machine":null,"rate_exec":7}',
      ],
      ['account operator a@b', 'POST /admin/accounts/a%40b/operator {"is_operator":true}'],
      ['account operator a1 --remove', 'POST /admin/accounts/a1/operator {"is_operator":false}'],
      ['account password a1', 'POST /admin/accounts/a1/password {}'],
      ['account key a1', 'POST /admin/accounts/a1/keys {}'],
      ['account key a1 --scope read --name n', 'POST /admin/accounts/a1/keys {"scope":"read","name":"n"}'],
      ['account billing a1 prepaid', 'POST /admin/accounts/a1/billing {"billing_mode":"prepaid"}'],
      ['prices', 'GET /admin/prices'],
      ['prices set --vcpu-hour 0.05', 'POST /admin/prices {"vcpu_hour":"0.05"}'],
      [
        'prices set --memory-gib-hour 1 --storage-gib-hour 2 --snapshot-gib-hour 0 --json',
        'POST /admin/prices {"memory_gib_hour":"1","storage_gib_hour":"2","snapshot_gib_hour":"0"}',
      ],
      ['invoice a@b 2026-10', 'GET /admin/accounts/a%40b/invoice?month=2026-10'],
      ['host list', 'GET /admin/hosts'],
      ['host cordon h1', 'POST /admin/hosts/h1/cordon {}'],
      ['host uncordon h1', 'POST /admin/hosts/h1/uncordon {}'],
      ['host undrain h2', 'POST /admin/hosts/h2/uncordon {}'],
      ['host remove h1', 'POST /admin/hosts/h1/remove {}'],
      ['host remove h1 --force', 'POST /admin/hosts/h1/remove {"force":true}'],
      ['host drain h1 --json', 'POST /admin/hosts/h1/drain {}'],
    ];
    const results = await Promise.all(cases.map(([line]) => admin(line)));
    for (const { code, stderr } of results) {
      assert.equal(code, 0, stderr);
      assert.match(stderr, /^(A key or a password is shown this once only\.\n)?$/);
    }
    assert.deepEqual(calls.sort(), cases.map(([, call]) => call).sort());
  });

  it('--json prints the answer unchanged', async () => {
    assert.deepEqual(JSON.parse((await admin('account create --email a@b --json')).stdout), made);
    assert.deepEqual(JSON.parse((await admin('account list --json')).stdout), { accounts: [account] });
    assert.deepEqual(JSON.parse((await admin('account limits a1 --vcpus 3 --json')).stdout), account);
    assert.deepEqual(JSON.parse((await admin('host list --json')).stdout), { hosts: [host] });
  });

  it('prints keys, balances and limits for people', async () => {
    const secrets = (await admin('account create --email a@b')).stdout;
    for (const value of Object.values(made)) assert(secrets.includes(value), value);
    const { stdout } = await admin('account show a1');
    assert.match(stdout, /^Balance +12\.340000 EUR$/m);
    assert.match(stdout, /^machines +2 +7 +7$/m);
    assert.match(stdout, /^rate_mutating +- +2\/s, 12 at once +2$/m);
    assert.match(
      (await admin('account list')).stdout,
      /^ID +E-MAIL.*\na1 +a@example\.test +active +payg +prepaid +12\.340000/,
    );
    assert.match(
      (await admin('host list')).stdout,
      /^ID +NAME +ADDRESS +STATE.*\nh1 +rack-7 +10\.0\.0\.7:7072 +away, cordoned +0\.1\.0 +kvm +2\/8 +1024\/16384 +20\/200 +100 +1 +t/,
    );
  });

  it('drain says what is still on the host', async () => {
    const { stderr } = await admin('host drain h1');
    assert.match(stderr, /still on the host: machines 1, volumes 0, snapshots 0/);
    assert.match(stderr, /machine m1: It is running: only a stopped machine moves\./);
  });

  it('prints prices', async () => {
    assert.match((await admin('prices')).stdout, /^UNIT +EUR\nvcpu-hour +0\.050000\n[\s\S]*In force since t\.\n$/);
    for (const line of ['prices --json', 'prices set --vcpu-hour 1 --json', 'prices --json set --vcpu-hour 1']) {
      assert.deepEqual(JSON.parse((await admin(line)).stdout), prices, line);
    }
  });

  it('prints an invoice whose amounts add up to the cent, and with --json to the micro-euro', async () => {
    const { stdout } = await admin('invoice a1 2026-10');
    assert.equal(
      stdout,
      [
        'Account  a1  a@example.test',
        'Month    2026-10 (UTC)',
        '',
        '                                      QUANTITY         PRICE      AMOUNT EUR',
        'Balance at the beginning                                                1.00',
        'Top-ups                                      2                         25.00',
        'vCPU, hours                          20.000000      0.050000           -1.00',
        'Memory, GiB hours                    20.833333      0.016000           -0.33',
        'Storage, GiB hours                   16.666666      0.000200            0.00',
        'Balance at the end                                                     24.67',
        '',
      ].join('\n'),
    );
    assert.deepEqual(JSON.parse((await admin('invoice a1 2026-10 --json')).stdout), invoice);
    refusal = { status: 200, body: JSON.stringify({ ...invoice, is_final: false }) };
    assert.match(
      (await admin('invoice a1 2026-10')).stdout,
      /2026-10 \(UTC\), which is not over yet\n[\s\S]*^Balance now /m,
    );
  });

  it('credit > says on stderr, and with --json in the answer, that the ledger already has the credit', async () => {
    const line = 'account credit a1 --eur 5 --as top-up --reference again';
    const { code, stdout, stderr } = await admin(line);
    assert.deepEqual(
      [code, stderr],
      [0, 'sandbar: the ledger already has an entry with this reference; nothing was changed\n'],
    );
    assert.match(stdout, /^Balance +12\.340000 EUR$/m);
    assert.equal(JSON.parse((await admin(`${line} --json`)).stdout).is_new, false);
  });

  it('credit > without a reference makes a new one each time, and names it when the outcome is unknown', async () => {
    const line = 'account credit a1 --eur 12.5 --as top-up';
    assert.equal((await admin(line)).stderr, '');
    refusal = { status: 503, body: JSON.stringify({ code: 'host_unavailable', detail: 'The outcome is unknown.' }) };
    const { code, stderr } = await admin(line);
    const [first, second] = calls.map((call) => JSON.parse(call.slice(call.indexOf('{'))));
    assert.deepEqual([first.eur, first.as], ['12.5', 'top-up']);
    assert.notEqual(first.reference, second.reference);
    assert.equal(code, 1);
    assert.ok(stderr.includes(`--reference '${second.reference}'`), stderr);
    refusal = { status: 409, body: JSON.stringify({ code: 'conflict', detail: 'No.' }) };
    assert.doesNotMatch((await admin(line)).stderr, /--reference/);
  });

  it('says whether an account is an operator', async () => {
    assert.match((await admin('account show a1')).stdout, /^Operator +no$/m);
    refusal = { status: 200, body: JSON.stringify({ ...account, is_operator: true }) };
    assert.match((await admin('account show a1')).stdout, /^Operator +yes$/m);
  });

  it('says whether an account is suspended or deleted', async () => {
    refusal = { status: 200, body: JSON.stringify({ ...account, suspended_at: 'yesterday' }) };
    assert.match((await admin('account show a1')).stdout, /^State +suspended since yesterday$/m);
    refusal = { status: 200, body: JSON.stringify({ accounts: [{ ...account, suspended_at: 's', deleted_at: 'd' }] }) };
    assert.match((await admin('account list')).stdout, /a1 +a@example\.test +deleted +payg/);
  });

  it('a wrong command line is one line and exit code 2, and sends no request', async () => {
    const wrong = [
      'nope',
      'account nope',
      'account toString',
      'account create',
      'account create --email a@b extra',
      'account create --email a@b --tier gold',
      'account show',
      'account show a b',
      'account tier a1',
      'account tier a1 gold',
      'account credit a1 --eur 5',
      'account credit a1 --as bonus',
      'account credit a1 --eur 5 --as charge',
      'account credit a1 --eur 5 --as bonus --reference',
      'account suspend',
      'account operator',
      'account operator a1 --remove a2',
      'account delete',
      'account delete a1',
      'account limits a1',
      'account limits a1 --machines many',
      'account limits a1 --machines -1',
      'account limits a1 --disks 1',
      'account billing a1',
      'account billing a1 free',
      'prices set',
      'prices set --vcpu-hour',
      'prices change',
      'invoice a1',
      'invoice a1 2026-10 extra',
      'account key a1 --scope all',
      'host list all',
      'host token --expires 59s',
      'host token --expires 2d',
      'host token --expires soon',
      'host revoke-token',
      'fleet rotate-authority now',
      'host drain',
    ];
    const results = await Promise.all(wrong.map(async (line) => ({ line, ...(await admin(line)) })));
    for (const { line, code, stderr } of results) {
      assert.equal(code, 2, line);
      assert.match(stderr, /^sandbar: .+\n$/, line);
    }
    assert.deepEqual(calls, []);
  });

  it('a group without an action prints its help to stderr, with exit code 2', async () => {
    for (const [line, known] of [
      ['', /account .*\n[\s\S]*prices[\s\S]*invoice[\s\S]*host/],
      ['account', /password/],
      ['host', /undrain/],
    ] as const) {
      const { code, stdout, stderr } = await admin(line);
      assert.deepEqual([code, stdout], [2, '']);
      assert.match(stderr, known);
    }
    assert.deepEqual(calls, []);
  });

  it('host token prints the command for the new host, and nothing else to stdout', async () => {
    const { code, stdout, stderr } = await admin('host token --expires 10m');
    assert.equal(code, 0);
    assert.equal(stdout, `sandbar host join --url ${hostToken.url} --token ${hostToken.token}\n`);
    assert.match(stderr, /^sandbar: for one host, until t\./);
    assert.deepEqual(JSON.parse((await admin('host token --json')).stdout), hostToken);
    assert.match((await admin('host tokens')).stdout, /^ID +CREATED +EXPIRES\nt1 +c +e\n$/);
    for (const line of ['host revoke-token t1', 'fleet rotate-authority']) assert.equal((await admin(line)).code, 0);
    assert.deepEqual(calls, [
      'POST /admin/host-tokens {"expires_in_sec":600}',
      'POST /admin/host-tokens {}',
      'GET /admin/host-tokens',
      'POST /admin/host-tokens/t1/revoke {}',
      'POST /admin/fleet/rotate-authority {}',
    ]);
  });

  it('an error is one line with its code', async () => {
    refusal = { status: 404, body: JSON.stringify({ code: 'not_found', detail: 'no such account' }) };
    const { code, stderr } = await admin('account show nobody');
    assert.deepEqual([code, stderr], [5, 'sandbar: not_found: no such account\n']);
    refusal = { status: 502, body: 'garbage' };
    assert.equal(
      (await admin('account show nobody')).stderr,
      'sandbar: unknown: the service answered with status 502\n',
    );
  });

  it('a missing or dead socket is an error that says what to check', async () => {
    const absent = await admin('host list', { SANDBAR_HOME: join(home, 'absent') });
    assert.equal(absent.code, 1);
    assert.match(absent.stderr, /^sandbar: .*absent.*is npm start running.*owner of its data directory.*\n$/);
    const dead = homePaths(join(home, 'dead')).adminSocket;
    mkdirSync(dirname(dead), { recursive: true });
    writeFileSync(dead, '');
    const { code, stderr } = await admin('host list', { SANDBAR_HOME: join(home, 'dead') });
    assert.equal(code, 1);
    assert.match(stderr, /^sandbar: nobody answers at .*is npm start running.*\n$/);
  });
});
