// Tests the operator's credits and corrections: each is recorded once, and an invalid amount changes nothing.
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { AccountCredited, NewAccount } from '@sandbar/contract/admin.ts';
import { callAdmin } from './support/admin.ts';
import { startTestBed } from './support/test-bed.ts';

const bed = await startTestBed({ replicas: 2 });
const { plane } = bed;
const [, second = plane] = bed.replicas;
const { db } = plane.app;

let made = 0;
async function makeAccount(): Promise<string> {
  const body = { email: `credit-${++made}@example.test`, billing_mode: 'prepaid' };
  return (await callAdmin<NewAccount>(plane.app.config.adminSocket, '/admin/accounts', body)).json.account_id;
}
const credit = (id: string, body: object, on = plane) =>
  callAdmin<AccountCredited & { code: string; detail: string }>(
    on.app.config.adminSocket,
    `/admin/accounts/${id}/credit`,
    body,
  );
const entriesOf = (id: string) =>
  db
    .selectFrom('ledger')
    .select(['kind', 'amount_micros', 'reference', 'note'])
    .where('account_id', '=', id)
    .orderBy('created_at')
    .execute();

describe('account credit', () => {
  it('records the reference and the note, or a note that names the operator', async () => {
    const id = await makeAccount();
    await credit(id, { eur: '25', as: 'top-up', reference: 'transfer 7', note: 'paid by bank transfer' });
    await credit(id, { eur: '1.5', as: 'bonus' });
    assert.deepEqual(await entriesOf(id), [
      { kind: 'top-up', amount_micros: 25_000_000, reference: 'transfer 7', note: 'paid by bank transfer' },
      { kind: 'bonus', amount_micros: 1_500_000, reference: null, note: 'by the operator' },
    ]);
  });

  it('with the same reference again changes nothing and says so, from any replica and at the same time', async () => {
    const id = await makeAccount();
    const body = { eur: '10', as: 'top-up', reference: 'transfer 8' };
    const answers = await Promise.all(
      Array.from({ length: 6 }, (_, index) => credit(id, body, index % 2 === 0 ? plane : second)),
    );
    assert.deepEqual(answers.map(({ status, json }) => [status, json.is_new, json.balance]).sort(), [
      ...Array(5).fill([200, false, '10.000000']),
      [200, true, '10.000000'],
    ]);
    assert.equal((await entriesOf(id)).length, 1);
  });

  it('with the reference of a different entry is a conflict and changes nothing', async () => {
    const [id, other] = [await makeAccount(), await makeAccount()];
    const body = { eur: '10', as: 'top-up', reference: 'transfer 9' };
    await credit(id, body);
    for (const [account, changed] of [
      [id, { ...body, eur: '11' }],
      [id, { ...body, as: 'bonus' }],
      [other, body],
    ] as const) {
      const { status, json } = await credit(account, changed);
      assert.deepEqual([status, json.code], [409, 'conflict'], JSON.stringify(changed));
    }
    assert.deepEqual([(await entriesOf(id)).length, (await entriesOf(other)).length], [1, 0]);
  });

  it('with one reference for many accounts at once credits one of them', async () => {
    const ids = await Promise.all(Array.from({ length: 5 }, makeAccount));
    const answers = await Promise.all(ids.map((id) => credit(id, { eur: '1', as: 'bonus', reference: 'shared' })));
    assert.deepEqual(answers.map(({ status }) => status).sort(), [200, 409, 409, 409, 409]);
    assert.equal((await Promise.all(ids.map(entriesOf))).flat().length, 1);
  });

  it('as a correction may take money out, also more than there is, and keeps the tier', async () => {
    const id = await makeAccount();
    await credit(id, { eur: '2', as: 'correction' });
    const { json } = await credit(id, { eur: '-3.000001', as: 'correction', note: 'paid twice' });
    assert.deepEqual([json.balance, json.tier], ['-1.000001', 'free']);
    assert.deepEqual(
      (await entriesOf(id)).map(({ kind, amount_micros }) => [kind, amount_micros]),
      [
        ['correction', 2_000_000],
        ['correction', -3_000_001],
      ],
    );
  });

  it('with an invalid amount is 400, names the field and changes nothing', async () => {
    const id = await makeAccount();
    const refused: [eur: unknown, as: string][] = [
      ...['-1', '-0.000001', '0', '-0', '0.000000'].flatMap((eur) => [
        [eur, 'top-up'] as [unknown, string],
        [eur, 'bonus'] as [unknown, string],
      ]),
      ...[
        '0.0000001',
        '1.0000000',
        '1,5',
        '1e3',
        '',
        ' 1',
        '+1',
        '.5',
        '1.',
        'ten',
        '0x10',
        '1000000.000001',
        'NaN',
      ].map((eur) => [eur, 'top-up'] as [unknown, string]),
      ...['0', '-0', '0.0000001', '-1000000.000001', '--1'].map((eur) => [eur, 'correction'] as [unknown, string]),
      [5, 'top-up'],
      [null, 'top-up'],
    ];
    for (const [eur, as] of refused) {
      const { status, json } = await credit(id, { eur, as });
      assert.deepEqual([status, json.code], [400, 'validation_error'], `${eur} ${as}`);
      assert.match(json.detail, /^eur must /, `${eur} ${as}`);
    }
    for (const [body, field] of [
      [{ eur: '1', as: 'charge' }, 'as'],
      [{ eur: '1', as: 'refund' }, 'as'],
      [{ eur: '1', as: 'bonus', reference: '' }, 'reference'],
      [{ eur: '1', as: 'bonus', reference: 'r'.repeat(256) }, 'reference'],
      [{ eur: '1', as: 'bonus', note: 'a\0b' }, 'note'],
    ] as const) {
      const { status, json } = await credit(id, body);
      assert.equal(status, 400, json.detail);
      assert(json.detail.startsWith(`${field} must `), json.detail);
    }
    assert.deepEqual(await entriesOf(id), []);
  });
});
