// Tests the renewal of certificates: of a host, over the control plane's own connection to it; of the control plane
// itself; and of the authority. The host is an agent behind real TLS.
import assert from 'node:assert/strict';
import { randomUUID, X509Certificate } from 'node:crypto';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { json as readJson } from 'node:stream/consumers';
import { after, describe, it } from 'node:test';
import { type AgentCertificate, CERTIFICATE_PATHS } from '@sandbar/contract/fleet.ts';
import { sql } from 'kysely';
import { readAuthorities, retireAuthorities } from '../src/fleet/authorities.ts';
import { createFleet } from '../src/fleet/fleet.ts';
import { ControlPlaneIdentity } from '../src/fleet/identity.ts';
import { joinHost } from '../src/fleet/join.ts';
import { renewAgentCertificate } from '../src/fleet/renew.ts';
import { createHostToken } from '../src/fleet/tokens.ts';
import { createHostClient } from '../src/hosts/client.ts';
import { callAdmin } from './support/admin.ts';
import { startTestBed } from './support/test-bed.ts';
import { makeRequest, serveTls } from './support/tls-agent.ts';

const HOUR_MS = 3_600_000;
const dir = mkdtempSync(join(tmpdir(), 'sandbar-renew-'));
const closers: (() => void)[] = [];
const bed = await startTestBed();
const { app } = bed.plane;
const { db, config } = app;
after(() => {
  for (const close of closers) close();
  rmSync(dir, { recursive: true, force: true });
});

/** A host that has joined, whose agent renews its certificate when it is asked. `asked` counts the requests. */
async function joinedHost() {
  const host_id = randomUUID();
  const socketPath = join(dir, host_id);
  const certificate_request = await makeRequest();
  let { key } = certificate_request;
  const { token } = await createHostToken(app);
  const asked = { token, host_id, name: '', address: '127.0.0.1:1', certificate_request: certificate_request.request };
  const issued = await joinHost(app, asked);
  const agent = { asked: 0, installed: issued, request: async () => makeRequest() };
  const server = createServer(async (request, response) => {
    if (request.url === CERTIFICATE_PATHS.request && request.method === 'POST') {
      agent.asked += 1;
      const made = await agent.request();
      key = made.key;
      response.end(JSON.stringify({ certificate_request: made.request }));
    } else if (request.url === CERTIFICATE_PATHS.certificate && request.method === 'PUT') {
      agent.installed = (await readJson(request)) as AgentCertificate;
      tls.use({ key, ...agent.installed });
      response.writeHead(204).end();
    } else response.end('{"machines":[]}');
  });
  server.listen(socketPath);
  await once(server, 'listening');
  const tls = await serveTls({ key, ...issued }, socketPath);
  closers.push(
    () => server.close(),
    () => tls.close(),
  );
  await db
    .updateTable('hosts')
    .set({ address: `127.0.0.1:${tls.port}` })
    .where('id', '=', host_id)
    .execute();
  const row = () => db.selectFrom('hosts').selectAll().where('id', '=', host_id).executeTakeFirstOrThrow();
  // A fleet of its own opens its own connections, with what the control plane knows now.
  const connect = async () => {
    const client = createHostClient(createFleet(config, db).targetOf(await row()));
    closers.push(() => client.close());
    return client;
  };
  const renew = async () => renewAgentCertificate(app, host_id, await connect());
  const setLeft = (days: number) =>
    db
      .updateTable('hosts')
      .set({ certificate_expires_at: sql<Date>`now() + ${days} * interval '1 day'` })
      .where('id', '=', host_id)
      .execute();
  return { host_id, agent, row, connect, renew, setLeft, tls };
}

const setAge = (seconds: number) =>
  sql`update fleet_authorities set created_at = created_at - ${seconds} * interval '1 second'`.execute(db);

describe('the certificate of a host', () => {
  it('is left alone while more than a third of its time is left', async () => {
    const { agent, renew, setLeft } = await joinedHost();
    await renew();
    await setLeft(10.1);
    await renew();
    assert.equal(agent.asked, 0);
  });

  it('is renewed with a new key after that, and new connections get the new one', async () => {
    const { agent, renew, setLeft, row, connect } = await joinedHost();
    const { installed } = agent;
    await setLeft(9.9);
    await renew();
    assert.equal(agent.asked, 1);
    const [before, now] = [installed, agent.installed].map(({ certificate }) => new X509Certificate(certificate));
    assert(before && now);
    assert.equal(now.subjectAltName, before.subjectAltName);
    assert(!now.publicKey.equals(before.publicKey));
    const { certificate_expires_at } = await row();
    assert.equal(Math.floor(Number(certificate_expires_at) / 1000) * 1000, now.validToDate.getTime());
    assert.deepEqual(await (await connect()).listMachines(), []);
    await renew();
    assert.equal(agent.asked, 1);
  });

  it('stays when the request of the agent is not one', async () => {
    const { agent, renew, setLeft, row } = await joinedHost();
    const { installed } = agent;
    await setLeft(1);
    const { certificate_expires_at } = await row();
    agent.request = async () => ({ key: '', request: 'none' });
    await assert.rejects(renew(), { code: 'validation_error' });
    assert.equal(agent.installed, installed);
    assert.deepEqual((await row()).certificate_expires_at, certificate_expires_at);
  });

  it('is not renewed for a host that was removed or never joined', async () => {
    const { agent, host_id, renew, setLeft } = await joinedHost();
    await setLeft(1);
    await db.updateTable('hosts').set({ removed_at: new Date() }).where('id', '=', host_id).execute();
    await renew();
    assert.equal(agent.asked, 0);
    const none = { requestCertificate: () => assert.fail(), installCertificate: () => assert.fail() };
    await renewAgentCertificate(app, bed.host.info.host_id, none);
    await renewAgentCertificate(app, randomUUID(), none);
  });
});

describe('the certificate of the control plane', () => {
  it('is used for half a day, and then replaced', async () => {
    let now = 0;
    const identity = new ControlPlaneIdentity(db, config.secret, () => now);
    const [first, same] = await Promise.all([identity.context(), identity.context()]);
    assert.equal(first, same);
    now = 12 * HOUR_MS - 1;
    assert.equal(await identity.context(), first);
    now += 60_001;
    const second = await identity.context();
    assert.notEqual(second, first);
    assert.equal(await identity.context(), second);
  });

  it('is used on while the database is away, until it ends', async () => {
    let now = 0;
    let isAway = true;
    const selectFrom = (table: never) => {
      if (isAway) throw new Error('away');
      return db.selectFrom(table);
    };
    const identity = new ControlPlaneIdentity({ selectFrom } as unknown as typeof db, config.secret, () => now);
    await assert.rejects(identity.context(), /away/);
    isAway = false;
    const context = await identity.context();
    isAway = true;
    now = 24 * HOUR_MS - 60_001;
    assert.equal(await identity.context(), context);
    now += 60_001;
    await assert.rejects(identity.context(), /away/);
    isAway = false;
    assert.notEqual(await identity.context(), context);
  });
});

describe('a rotation of the authority', () => {
  const rotate = () => callAdmin(config.adminSocket, '/admin/fleet/rotate-authority', {});

  it('renews every host before the old authority is deleted, and all hosts are reached all the time', async () => {
    await db.deleteFrom('hosts').where('address', 'is not', null).execute();
    const [one, other] = [await joinedHost(), await joinedHost()];
    const reachAll = async () => {
      for (const { connect } of [one, other]) assert.deepEqual(await (await connect()).listMachines(), []);
    };
    const old = await readAuthorities(db, config.secret);
    assert.equal((await rotate()).status, 200);
    assert.equal((await rotate()).status, 409);

    // Two minutes pass until every replica has read the new authority.
    await one.renew();
    assert.equal(one.agent.asked, 0);
    assert.equal((await readAuthorities(db, config.secret)).signer.id, old.signer.id);
    await db
      .updateTable('hosts')
      .set({ certificate_expires_at: sql<Date>`certificate_expires_at - interval '1 hour'` })
      .where('address', 'is not', null)
      .execute();
    await setAge(180);
    const rotating = await readAuthorities(db, config.secret);
    assert.notEqual(rotating.signer.id, old.signer.id);
    await reachAll();

    await one.renew();
    assert.equal(one.agent.installed.authorities.length, 2);
    await reachAll();
    await retireAuthorities(app);
    assert.equal((await readAuthorities(db, config.secret)).trusted.length, 2);

    // A token that names the old authority still works, and with it the old authority stays.
    const { id } = await createHostToken(app);
    await other.renew();
    await reachAll();
    await retireAuthorities(app);
    assert.equal((await readAuthorities(db, config.secret)).trusted.length, 2);
    await callAdmin(config.adminSocket, `/admin/host-tokens/${id}/revoke`, {});
    await retireAuthorities(app);
    const after = await readAuthorities(db, config.secret);
    assert.deepEqual(after.trusted, [rotating.signer.certificate]);
    await reachAll();
    await one.renew();
    assert.equal(one.agent.asked, 1);
  });

  it('does not wait for hosts that were removed or whose certificates have expired', async () => {
    const [removed, expired] = [await joinedHost(), await joinedHost()];
    assert.equal((await rotate()).status, 200);
    await setAge(180);
    await db.updateTable('hosts').set({ removed_at: new Date() }).where('id', '=', removed.host_id).execute();
    await expired.setLeft(-1);
    await db
      .deleteFrom('hosts')
      .where('address', 'is not', null)
      .where('id', 'not in', [removed.host_id, expired.host_id])
      .execute();
    await retireAuthorities(app);
    assert.equal((await readAuthorities(db, config.secret)).trusted.length, 1);
  });
});
