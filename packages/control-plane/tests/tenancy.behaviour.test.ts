// Tests who may have machines on a host without hardware virtualisation: the owner, and other accounts only if a
// setting allows it.
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { checkBooks, startTestBed } from './support/test-bed.ts';

const bed = await startTestBed({ config: { allowEmulatedTenants: false } });
const { api, keys, plane } = bed;
const { db } = plane.app;
const create = (key: string) => api('POST', '/v1/machines', { key });

describe('an emulated host', () => {
  it('refuses accounts beyond the first with the reason, before their wallet and quota are looked at', async () => {
    await db.updateTable('accounts').set({ billing_mode: 'prepaid' }).where('id', '=', bed.accountId).execute();
    const answer = await create(keys.full);
    assert.deepEqual([answer.status, answer.json.code], [403, 'forbidden']);
    assert.match(answer.json.detail, /no hardware virtualisation.*SANDBAR_ALLOW_EMULATED_TENANTS=1/);
    await db.updateTable('accounts').set({ billing_mode: 'unmetered' }).where('id', '=', bed.accountId).execute();
    await checkBooks(bed);
  });

  it('serves the account of its owner', async () => {
    await db.updateTable('accounts').set({ is_owner: true }).where('id', '=', bed.accountId).execute();
    assert.equal((await create(keys.full)).status, 201);
    assert.equal((await create(keys.other)).status, 403);
  });

  it('does not start what an account had when it was allowed', async () => {
    const { id } = (await create(keys.full)).json;
    await api('POST', `/v1/machines/${id}/stop`);
    await db.updateTable('accounts').set({ is_owner: false }).where('id', '=', bed.accountId).execute();
    const answer = await api('POST', `/v1/machines/${id}/start`);
    assert.deepEqual([answer.status, answer.json.code], [403, 'forbidden']);
    assert.equal((await api('DELETE', `/v1/machines/${id}`)).status, 200);
    await checkBooks(bed);
  });
});

describe('a host with hardware virtualisation', () => {
  it('serves everybody', async () => {
    const other = await startTestBed({ config: { allowEmulatedTenants: false }, host: { isolation: 'kvm' } });
    const answer = await other.api('POST', '/v1/machines', { key: other.keys.other });
    assert.equal(answer.status, 201, answer.text);
  });
});
