// Tests how hosts join: tokens, the certificates that a host gets, and what a join writes. The requests go to the API
// of a replica, and a joined host is an agent behind real TLS.
import assert from 'node:assert/strict';
import { createPublicKey, randomUUID, X509Certificate } from 'node:crypto';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, it } from 'node:test';
import { type AgentCertificate, HOST_TOKEN_PATTERN, hostNameOf, JOIN_PATH } from '@sandbar/contract/fleet.ts';
import { readAuthorities, unlockAuthority } from '../src/fleet/authorities.ts';
import { createHostClient } from '../src/hosts/client.ts';
import { registerHost } from '../src/hosts/store.ts';
import { describeApis } from '../src/openapi/describe.ts';
import { callAdmin } from './support/admin.ts';
import { FakeHost } from './support/fake-host.ts';
import { startTestBed, type TestBed } from './support/test-bed.ts';
import { makeRequest, serveTls } from './support/tls-agent.ts';

const DAY_MS = 86_400_000;
const NO_TOKEN = `sbh_${'x'.repeat(43)}.${'0'.repeat(32)}`;
const bed = await startTestBed({ replicas: 2 });
const { plane, api, replicas } = bed;
const { db, config, fleet } = plane.app;
const rates = { ...config.rates, signInAddress: { perSec: 0.01, burst: 3 } };
const limited = await startTestBed({ config: { rates } });
const { key, request } = await makeRequest();

type Asked = { token: string; host_id?: string; name?: string; address?: string; certificate_request?: string };

async function makeToken(expires_in_sec?: number, one: TestBed['plane'] = plane) {
  const body = expires_in_sec === undefined ? {} : { expires_in_sec };
  const { status, json } = await callAdmin(one.app.config.adminSocket, '/admin/host-tokens', body);
  assert.equal(status, 200, JSON.stringify(json));
  return json as { id: string; token: string; url: string; expires_at: string };
}

const ask = (asked: Asked, one = plane) =>
  api('POST', JOIN_PATH, {
    key: null,
    plane: one,
    body: { host_id: randomUUID(), name: 'box', address: '10.0.0.5:7072', certificate_request: request, ...asked },
  });

async function joinAs(host_id: string, address = '10.0.0.5:7072'): Promise<AgentCertificate> {
  const { token } = await makeToken();
  const { status, text, json } = await ask({ token, host_id, address });
  assert.equal(status, 200, text);
  return json;
}

const rowOf = (id: string) => db.selectFrom('hosts').selectAll().where('id', '=', id).executeTakeFirstOrThrow();

describe('a join token', () => {
  it('is shown once, is stored as a hash, and lives for an hour or as long as was asked', async () => {
    const { token, url, expires_at, id } = await makeToken();
    assert.match(token, new RegExp(HOST_TOKEN_PATTERN));
    assert.equal(url, config.auth.publicUrl);
    const rows = JSON.stringify(await db.selectFrom('host_tokens').selectAll().execute());
    assert(!rows.includes(token) && !bed.logged().includes(token));
    assert(Math.abs(Date.parse(expires_at) - Date.now() - 3_600_000) < 60_000);
    const longer = await makeToken(86_400);
    assert(Date.parse(longer.expires_at) - Date.parse(expires_at) > 80_000_000);
    const { json } = await callAdmin<{ tokens: { id: string }[] }>(config.adminSocket, '/admin/host-tokens');
    assert.deepEqual(
      json.tokens.slice(0, 2).map((one) => one.id),
      [longer.id, id],
    );
    for (const seconds of [59, 86_401, 1.5]) {
      const refused = await callAdmin(config.adminSocket, '/admin/host-tokens', { expires_in_sec: seconds });
      assert.equal(refused.status, 400);
    }
  });

  it('that is unknown, expired, revoked or used is 401', async () => {
    const revoked = await makeToken();
    await callAdmin(config.adminSocket, `/admin/host-tokens/${revoked.id}/revoke`, {});
    const again = await callAdmin(config.adminSocket, `/admin/host-tokens/${revoked.id}/revoke`, {});
    assert.equal(again.status, 404);
    const expired = await makeToken();
    await db
      .updateTable('host_tokens')
      .set({ expires_at: new Date(0) })
      .where('id', '=', expired.id)
      .execute();
    const used = await makeToken();
    assert.equal((await ask({ token: used.token })).status, 200);
    for (const token of [NO_TOKEN, revoked.token, expired.token, used.token]) {
      const { status, json } = await ask({ token });
      assert.deepEqual([status, json.code], [401, 'unauthenticated']);
    }
  });

  it('lets one of many racing hosts join, on any replica', async () => {
    const { token } = await makeToken();
    const ids = Array.from({ length: 12 }, () => randomUUID());
    const answers = await Promise.all(ids.map((host_id, at) => ask({ token, host_id }, replicas[at % 2])));
    assert.deepEqual(answers.map(({ status }) => status).sort(), [200, ...Array(11).fill(401)]);
    const rows = await db.selectFrom('hosts').select('id').where('id', 'in', ids).execute();
    assert.equal(rows.length, 1);
  });

  it('answers the same request again, because its answer may have been lost, and no other one', async () => {
    const { token } = await makeToken();
    const host_id = randomUUID();
    assert.equal((await ask({ token, host_id })).status, 200);
    const repeated = await ask({ token, host_id, address: '10.0.0.6:7072' });
    assert.equal(repeated.status, 200);
    assert.equal((await rowOf(host_id)).address, '10.0.0.6:7072');
    const other = await makeRequest();
    assert.equal((await ask({ token, host_id, certificate_request: other.request })).status, 401);
    assert.equal((await ask({ token, host_id: randomUUID() })).status, 401);
    // A host that was removed needs a new token.
    await db.updateTable('hosts').set({ removed_at: new Date() }).where('id', '=', host_id).execute();
    assert.equal((await ask({ token, host_id })).status, 401);
    await db
      .updateTable('host_tokens')
      .set({ expires_at: new Date(0) })
      .where('host_id', '=', host_id)
      .execute();
  });
});

describe('a host that joins', () => {
  it('gets a certificate for its key and its name only, for 30 days, from an authority that the token names', async () => {
    const host_id = randomUUID();
    const { token } = await makeToken();
    const { json, headers } = await ask({ token, host_id });
    assert.equal(headers.get('cache-control'), 'no-store');
    const certificate = new X509Certificate(json.certificate);
    const [authority] = json.authorities.map((pem: string) => new X509Certificate(pem));
    assert.equal(certificate.subjectAltName, `URI:${hostNameOf(host_id)}`);
    assert(!certificate.subject.includes('control-plane'), certificate.subject);
    const ours = createPublicKey(key).export({ type: 'spki', format: 'pem' });
    assert.equal(certificate.publicKey.export({ type: 'spki', format: 'pem' }), ours);
    assert(certificate.checkIssued(authority) && certificate.verify(authority.publicKey));
    assert.equal(certificate.ca, false);
    assert.deepEqual(certificate.keyUsage, ['1.3.6.1.5.5.7.3.1']);
    assert.equal(authority.fingerprint256.replaceAll(':', '').toLowerCase().slice(0, 32), token.split('.')[1]);
    const days = (certificate.validToDate.getTime() - Date.now()) / DAY_MS;
    assert(days > 29.9 && days < 30.1, `${days} days`);
    const row = await rowOf(host_id);
    assert.equal(Math.floor(Number(row.certificate_expires_at) / 1000) * 1000, certificate.validToDate.getTime());
  });

  it('has the same authority whichever replica it asks', async () => {
    const authorities = await Promise.all(
      replicas.map(
        async (one) => (await ask({ token: (await makeToken(undefined, one)).token }, one)).json.authorities,
      ),
    );
    assert.equal(new Set(authorities.flat()).size, 1);
  });

  it('has room for nothing until its agent has reported its facts', async () => {
    const host_id = randomUUID();
    await joinAs(host_id);
    const { cpus, memory_mb, disk_mb, images, draining, name } = await rowOf(host_id);
    assert.deepEqual([cpus, memory_mb, disk_mb, images, draining, name], [0, 0, 0, [], false, 'box']);
    const { json, status } = await api('POST', '/v1/machines', { body: {} });
    assert.equal(status, 201);
    const machine = await db
      .selectFrom('machines')
      .select('host_id')
      .where('id', '=', json.id)
      .executeTakeFirstOrThrow();
    assert.equal(machine.host_id, bed.host.info.host_id);
  });

  it('is reached over TLS as the host that it is, and reports its facts', async () => {
    const host_id = randomUUID();
    const dir = mkdtempSync(join(tmpdir(), 'sandbar-joined-'));
    const host = new FakeHost(join(dir, 'host.sock'), { host_id, subnet: '10.99.0.0/16' });
    await host.listen();
    const agent = await serveTls({ key, ...(await joinAs(host_id)) }, join(dir, 'host.sock'));
    // It is known only now at which port the agent listens.
    await joinAs(host_id, `127.0.0.1:${agent.port}`);
    const target = fleet.targetOf(await rowOf(host_id));
    const client = createHostClient(target);
    after(async () => {
      client.close();
      agent.close();
      await host.away();
      rmSync(dir, { recursive: true, force: true });
    });
    await registerHost(db, await client.info());
    const row = await rowOf(host_id);
    assert.deepEqual([row.subnet, row.cpus > 0, row.address], ['10.99.0.0/16', true, `127.0.0.1:${agent.port}`]);
    assert.deepEqual(await client.listMachines(), []);
    const wrong = createHostClient({ ...target, hostId: randomUUID() });
    await assert.rejects(wrong.listMachines(), { code: 'host_unavailable', mayHaveActed: false });
    wrong.close();
  });

  it('again gets a new address and certificate, and is part of the fleet again if it was removed', async () => {
    const host_id = randomUUID();
    const first = await joinAs(host_id);
    await db.updateTable('hosts').set({ draining: true, emptying: true }).where('id', '=', host_id).execute();
    const second = await joinAs(host_id, '[fd00::5]:7072');
    assert.notEqual(first.certificate, second.certificate);
    const moved = await rowOf(host_id);
    assert.deepEqual([moved.address, moved.draining, moved.emptying], ['[fd00::5]:7072', true, true]);
    assert.partialDeepStrictEqual(fleet.targetOf(moved), { host: 'fd00::5', port: 7072, hostId: host_id });
    await db.updateTable('hosts').set({ removed_at: new Date() }).where('id', '=', host_id).execute();
    await joinAs(host_id);
    const back = await rowOf(host_id);
    assert.deepEqual([back.removed_at, back.draining, back.emptying], [null, false, false]);
  });
});

const toPemRequest = (der: Buffer): string =>
  `-----BEGIN CERTIFICATE REQUEST-----\n${der.toString('base64')}\n-----END CERTIFICATE REQUEST-----\n`;

describe('a request to join', () => {
  it('must prove that the host has the key, and spends no token otherwise', async () => {
    const { token } = await makeToken();
    const der = Buffer.from(request.replace(/-----.*-----/g, ''), 'base64');
    // The last byte belongs to the signature.
    der[der.length - 1] = (der.at(-1) ?? 0) ^ 1;
    const forged = toPemRequest(der);
    for (const certificate_request of [forged, toPemRequest(der.subarray(0, 99)), 'no request', '']) {
      const { status, json } = await ask({ token, certificate_request });
      assert.deepEqual([status, json.code], [400, 'validation_error'], certificate_request);
      assert.match(json.detail, /certificate_request/);
    }
    assert.equal((await ask({ token })).status, 200);
  });

  it('has the fields of the contract and no others', async () => {
    const { token } = await makeToken();
    for (const wrong of [
      { token: 'sbh_x' },
      { token: 7 as unknown as string },
      { host_id: 'me' },
      { address: '10.0.0.5' },
      { address: '10.0.0.5:0' },
      { address: '10.0.0.5:65536' },
      { address: 'http://10.0.0.5:7072' },
      { name: 'x'.repeat(256) },
      { name: 'a\0b' },
      { extra: 1 },
    ]) {
      const { status, json } = await ask({ token, ...wrong });
      assert.deepEqual([status, json.code], [400, 'validation_error'], JSON.stringify(wrong));
    }
    assert.equal((await api('GET', JOIN_PATH, { key: null })).status, 405);
  });

  it('is in no OpenAPI document', async () => {
    assert(!JSON.stringify(await describeApis()).includes('fleet/v1'));
  });

  it('is limited by the address of the client, like a sign-in', async () => {
    const statuses: number[] = [];
    for (let at = 0; at < 5; at++) statuses.push((await ask({ token: NO_TOKEN }, limited.plane)).status);
    assert.deepEqual(statuses, [401, 401, 401, 429, 429]);
  });
});

describe('the key of the authority', () => {
  it('is of no use without the secret of the service', async () => {
    const { signer } = await readAuthorities(db, config.secret);
    assert.equal((await unlockAuthority(signer, config.secret)).certificate, signer.certificate);
    const other = 'another secret that is long enough too';
    await assert.rejects(unlockAuthority(signer, other), { name: 'WrongSecret' });
    await assert.rejects(unlockAuthority({ ...signer, id: randomUUID() }, config.secret), { name: 'WrongSecret' });
  });

  it('is made once when many replicas need it at the same moment', async () => {
    await db.deleteFrom('fleet_authorities').execute();
    const all = await Promise.all(
      Array.from({ length: 16 }, (_, at) => readAuthorities((replicas[at % 2] ?? plane).app.db, config.secret)),
    );
    assert.equal(new Set(all.map(({ signer }) => signer.id)).size, 1);
    assert.equal((await db.selectFrom('fleet_authorities').select('id').execute()).length, 1);
  });
});
