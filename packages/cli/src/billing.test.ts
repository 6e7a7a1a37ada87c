// Tests `sandbar usage` and `sandbar ledger` as a user runs them, against a small HTTP server that stands in for the
// API.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import { tmpdir } from 'node:os';
import { after, before, beforeEach, describe, it } from 'node:test';
import type { LedgerDetails, Usage } from '@sandbar/contract/billing.ts';
import { runCli } from './test-support.ts';

const MACHINE = '019b2d6c-5f0a-7c3e-9a41-0d3f5b8e7a20';
const CSV = 'kind,amount\nvcpu,0.100000\n';

const usage: Usage = {
  currency: 'EUR',
  balance: '-0.500000',
  from: '2026-01-01T00:00:00.000Z',
  to: '2026-01-02T00:00:00.000Z',
  total: '0.100000',
  items: [
    {
      kind: 'vcpu',
      resource_kind: 'machine',
      resource_id: 'm1',
      day: '2026-01-01',
      metadata_value: 'a\x1b[2J',
      quantity: '2.000000',
      unit: 'vcpu_hour',
      amount: '0.100000',
    },
  ],
};
const entry: LedgerDetails = {
  id: 'e1',
  kind: 'charge',
  amount: '-0.100000',
  balance: '9.900000',
  by_kind: { vcpu: '0.100000', memory: '0.000000', storage: '0.000000', snapshot: '0.000000' },
  charged_from: 't1',
  charged_to: 't2',
  reference: null,
  note: '',
  created_at: 't2',
  lines: [
    {
      ...{ resource_kind: 'machine', resource_id: 'm1', kind: 'vcpu', from: 't1', to: 't2' },
      ...{ quantity: '2.000000', unit: 'vcpu_hour', price: '0.050000', amount: '0.100000' },
    },
  ],
};
const topUp = { ...entry, kind: 'top-up', charged_to: null, note: 'by card', reference: 'p\n1', lines: [] };

let server: Server;
let baseUrl: string;
let calls: string[];

before(async () => {
  server = createServer((request, response) => {
    const url = request.url ?? '';
    calls.push(url);
    if (request.headers.accept === 'text/csv') return response.end(CSV);
    const size = Number(/page_size=(\d+)/.exec(url)?.[1] ?? 0);
    const page = { entries: Array(Math.min(size, 1000)).fill(entry), next_cursor: 'next' };
    const single = url.endsWith('/top-up') ? topUp : entry;
    response.setHeader('content-type', 'application/json');
    response.end(JSON.stringify(url.includes('/usage') ? usage : url.includes('/ledger/') ? single : page));
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  assert(typeof address === 'object' && address !== null);
  baseUrl = `http://127.0.0.1:${address.port}`;
});
after(() => {
  server.closeAllConnections();
  server.close();
});
beforeEach(() => {
  calls = [];
});

const sandbar = (line: string) =>
  runCli(line.split(' '), {
    ...process.env,
    SANDBAR_HOME: `${tmpdir()}/no-such-home`,
    SANDBAR_BASE_URL: baseUrl,
    SANDBAR_API_KEY: 'k',
  });

describe('sandbar usage', () => {
  it('sends the range, the grouping and the machine', async () => {
    await sandbar('usage');
    await sandbar(
      `usage --from 2026-01-01T00:00:00Z --to 2026-01-02T00:00:00Z --by metadata.team --machine ${MACHINE}`,
    );
    assert.deepEqual(calls, [
      '/v1/billing/usage',
      '/v1/billing/usage?from=2026-01-01T00%3A00%3A00Z&to=2026-01-02T00%3A00%3A00Z&group_by=metadata.team&machine_id=' +
        MACHINE,
    ]);
  });

  it('prints a table that begins with the group, and the total with the balance', async () => {
    const table = (heading: string, cells: string) =>
      new RegExp(
        `^2026-01-01T00:00:00.000Z to 2026-01-02T00:00:00.000Z\n${heading}KIND +QUANTITY +UNIT +EUR\n` +
          `${cells}vcpu +2.000000 +vcpu_hour +0.100000\ntotal 0.100000 EUR, balance -0.500000 EUR\n$`,
      );
    assert.match((await sandbar('usage')).stdout, table('', ''));
    assert.match((await sandbar('usage --by kind')).stdout, table('', ''));
    assert.match((await sandbar('usage --by day')).stdout, table('DAY +', '2026-01-01 +'));
    assert.match((await sandbar('usage --by resource')).stdout, table('RESOURCE +ID +', 'machine +m1 +'));
    assert.match((await sandbar('usage --by metadata.team')).stdout, table('team +', 'a\\\\x1b\\[2J +'));
  });

  it('--json and --csv print the answer of the API unchanged', async () => {
    assert.deepEqual(JSON.parse((await sandbar('usage --json')).stdout), usage);
    assert.equal((await sandbar('usage --csv --by day')).stdout, CSV);
    assert.equal(calls.at(-1), '/v1/billing/usage?group_by=day');
  });

  it('a wrong command line exits with 2 and sends no request', async () => {
    for (const line of ['usage --csv --json', 'usage m1', 'usage --group day']) {
      const { code, stderr } = await sandbar(line);
      assert.equal(code, 2, line);
      assert.match(stderr, /^sandbar: .+\n$/);
    }
    assert.deepEqual(calls, []);
  });
});

describe('sandbar ledger', () => {
  it('prints each entry with its purpose, and reads as many pages as --limit needs', async () => {
    const { stdout } = await sandbar('ledger --limit 1001 --kind charge');
    assert.deepEqual(calls, [
      '/v1/billing/ledger?kind=charge&page_size=1000',
      '/v1/billing/ledger?kind=charge&page_size=1&cursor=next',
    ]);
    assert.match(
      stdout,
      /^TIME +KIND +EUR +BALANCE +ID +FOR\nt2 +charge +-0.100000 +9.900000 +e1 +use from t1 to t2\nt2 /,
    );
    assert.equal(stdout.split('\n').length, 1003);
  });

  it('prints the lines of an entry', async () => {
    const { stdout } = await sandbar('ledger e1');
    assert.deepEqual(calls, ['/v1/billing/ledger/e1']);
    assert.match(
      stdout,
      /\n\nRESOURCE +ID .*EUR\nmachine +m1 +vcpu +t1 +t2 +2.000000 +vcpu_hour +0.050000 +0.100000\n$/,
    );
    assert.match((await sandbar('ledger top-up')).stdout, /e1 +by card, p\\x0a1\n$/);
  });

  it('--json prints the answer of the API unchanged', async () => {
    assert.deepEqual(JSON.parse((await sandbar('ledger e1 --json')).stdout), entry);
    assert.deepEqual(JSON.parse((await sandbar('ledger --limit 1 --json')).stdout), {
      entries: [entry],
      next_cursor: 'next',
    });
  });

  it('a wrong command line exits with 2 and sends no request', async () => {
    for (const line of ['ledger --kind gift', 'ledger --limit x', 'ledger e1 --limit 5', 'ledger e1 --kind charge']) {
      const { code, stderr } = await sandbar(line);
      assert.equal(code, 2, line);
      assert.match(stderr, /^sandbar: .+\n$/);
    }
    assert.deepEqual(calls, []);
  });
});
