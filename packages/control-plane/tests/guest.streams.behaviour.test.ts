// Tests guest calls and guest streams of the control plane: who may open one, what ends it, and what the client is
// told. The requests go through the host agent's own routes; only the guest is played by the test.
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { dirname } from 'node:path';
import { describe, it } from 'node:test';
import { type ErrorCode, ServiceError } from '@sandbar/contract/errors.ts';
import { Type } from 'typebox';
import { insertKey } from '../src/api-keys/store.ts';
import { callGuest } from '../src/guest/call.ts';
import { openGuestStream } from '../src/guest/stream.ts';
import { errorBody } from '../src/http/errors.ts';
import { Places } from '../src/http/places.ts';
import type { Caller } from '../src/http/route-config.ts';
import { type PlayedStream, playStream } from './support/guest-stream.ts';
import { until } from './support/postgres.ts';
import { startTestBed } from './support/test-bed.ts';

const bed = await startTestBed();
const { api, host, plane } = bed;
const { app } = plane;
const machine: string = (await api('POST', '/v1/machines')).json.id;

async function callerWithKey(name: string, accountId = bed.accountId): Promise<Caller> {
  await insertKey(app.db, accountId, 'full', name);
  const { id } = await app.db.selectFrom('api_keys').select('id').where('name', '=', name).executeTakeFirstOrThrow();
  return {
    accountId,
    rates: { mutating: null, exec: null },
    scope: 'full',
    via: 'key',
    credentialId: id,
    isSuspended: false,
  };
}

const caller = await callerWithKey('streams');
const otherId = (
  await app.db.selectFrom('accounts').select('id').where('email', '=', 'other@example.test').executeTakeFirstOrThrow()
).id;
const PLACES = 3;
const places = new Places(PLACES, 'terminals');

/** Opens a stream to a played guest. */
async function open({
  by = app,
  as = caller,
  on = machine,
  waits = false,
  signal = new AbortController().signal,
} = {}) {
  let played: PlayedStream | undefined;
  host.guestStreams['terminals.attach'] = (_machineId, params) => {
    played = playStream({ asked: params });
    return played;
  };
  const stream = await openGuestStream(by, as, on, 'terminals.attach', { id: 7 }, { waits, places, signal });
  assert(played);
  return { ...stream, played };
}

/** All errors that clients were told here. */
const told: ServiceError[] = [];
const isError =
  (code: string, detail = /./) =>
  (error: unknown) => {
    if (error instanceof ServiceError) told.push(error);
    return error instanceof ServiceError && error.code === code && detail.test(error.message);
  };
const Ports = Type.Object({ ports: Type.Array(Type.Integer()) });
const listPorts = (on = machine, as = caller, options = {}) => callGuest(app, as, on, 'ports.list', {}, Ports, options);
/** Refuses in the same way for calls and for streams. */
async function refusesBoth(code: string, detail: RegExp, on = machine, as = caller): Promise<void> {
  await assert.rejects(listPorts(on, as), isError(code, detail));
  await assert.rejects(open({ on, as }), isError(code, detail));
}
/** True if the account has all its places. */
const areFree = () => {
  const leave = Array.from({ length: PLACES }, () => places.take(bed.accountId));
  for (const one of leave) one();
};

describe('a guest stream', () => {
  it('carries its parameters, its head, bytes both ways, each end and the result', async () => {
    const { head, duplex, result, played } = await open();
    assert.deepEqual(head, { asked: { id: 7 } });
    duplex.write('to the guest');
    assert.equal(String((await once(played.guest, 'data'))[0]), 'to the guest');
    duplex.end();
    await once(played.guest, 'end');
    played.guest.write('to the client');
    assert.equal(String((await once(duplex, 'data'))[0]), 'to the client');
    played.finish({ exit_code: 0 });
    await once(duplex, 'end');
    assert.deepEqual(await result, { exit_code: 0 });
  });

  it('ends when its key is revoked, and says so; another one goes on', async () => {
    const as = await callerWithKey('to be revoked');
    const [stream, other] = [await open({ as }), await open()];
    const cut = once(stream.played.guest, 'close');
    await app.db.deleteFrom('api_keys').where('id', '=', as.credentialId).execute();
    await assert.rejects(stream.result, isError('unauthenticated'));
    await cut;
    assert(stream.duplex.destroyed && !other.duplex.destroyed);
    other.duplex.destroy();
  });

  it('ends when the client goes, also while it is being opened', async () => {
    const client = new AbortController();
    const stream = await open({ signal: client.signal });
    const cut = once(stream.played.guest, 'close');
    client.abort();
    await assert.rejects(stream.result, isError('conflict', /client closed/));
    await cut;
    await assert.rejects(open({ signal: client.signal }), isError('conflict', /client closed/));
    areFree();
  });

  it('ends when the service shuts down, and says so', async () => {
    const replica = await bed.addReplica();
    const stream = await open({ by: replica.app });
    const cut = once(stream.played.guest, 'close');
    await Promise.all([assert.rejects(stream.result, isError('shutting_down')), cut, replica.close()]);
  });

  it('ends with the error of the guest', async () => {
    const stream = await open();
    stream.played.fail(new ServiceError('disk_full', 'The disk of the machine is full.'));
    await assert.rejects(stream.result, isError('disk_full', /is full/));
    areFree();
  });

  it('that breaks is host_unavailable, and conflict if its machine was stopped', async () => {
    const stream = await open();
    stream.played.fail(new Error('broken'));
    await assert.rejects(stream.result, isError('host_unavailable'));
    const other: string = (await api('POST', '/v1/machines')).json.id;
    const stopped = await open({ on: other });
    assert.equal((await api('POST', `/v1/machines/${other}/stop`)).status, 200);
    stopped.played.fail(new Error('the VM has ended'));
    await assert.rejects(stopped.result, isError('conflict', /is stopped/));
    await refusesBoth('conflict', /is stopped/, other);
  });

  it('that cannot be opened because the connection to the guest breaks is host_unavailable, and so is a call', async () => {
    host.guestCalls['ports.list'] = () => {
      throw new Error('the session broke');
    };
    await assert.rejects(listPorts(), isError('host_unavailable', /connection to the machine broke/));
    host.guestStreams['terminals.attach'] = () => {
      throw new Error('the session broke');
    };
    const options = { waits: false, places, signal: new AbortController().signal };
    const opening = openGuestStream(app, caller, machine, 'terminals.attach', {}, options);
    await assert.rejects(opening, isError('host_unavailable', /connection to the machine broke/));
    areFree();
  });

  it('takes a place of its account until it is closed: one more is rate_limited', async () => {
    const streams = [await open(), await open(), await open()];
    await assert.rejects(open(), isError('rate_limited', /has 3 open terminals/));
    const as = await callerWithKey('another account', otherId);
    await assert.rejects(open({ as }), isError('not_found'), 'another account has its own places');
    streams[0]?.played.finish({});
    streams[0]?.duplex.resume();
    if (streams[0]) await once(streams[0].duplex, 'close');
    streams.push(await open());
    const closed = streams.map(({ duplex }) => duplex.destroyed || once(duplex, 'close'));
    for (const { duplex } of streams) duplex.destroy();
    await Promise.all(closed);
    areFree();
  });

  it('waits for a machine that is being created only if it is asked to', async () => {
    host.fault('ensure', 'hang', 1);
    const creating = api('POST', '/v1/machines', { body: { name: 'slow' } });
    const find = () => app.db.selectFrom('machines').select('id').where('name', '=', 'slow').executeTakeFirst();
    await until(async () => (await find()) !== undefined, 'it is being created');
    const on = (await find())?.id ?? '';
    await assert.rejects(open({ on, waits: false }), isError('conflict', /is provisioning/));
    await assert.rejects(listPorts(on, caller, { waits: false }), isError('conflict', /is provisioning/));
    const opening = open({ on, waits: true });
    host.release();
    assert.equal((await creating).status, 201);
    (await opening).duplex.destroy();
  });
});

describe('guest calls and guest streams', () => {
  it('do not tell an absent machine from one of another account', async () => {
    const other = await callerWithKey('a foreign key', otherId);
    await refusesBoth('not_found', /^There is no such machine\.$/, machine, other);
    await refusesBoth('not_found', /^There is no such machine\.$/, randomUUID());
  });

  it('are refused by a machine that an older version of the service made, with what to do', async () => {
    const old = /created by an older version of the service and cannot .*; create a new one/;
    delete host.guestCalls['ports.list'];
    host.guestStreams['terminals.attach'] = undefined;
    const params = { waits: false, places, signal: new AbortController().signal };
    const opening = openGuestStream(app, caller, machine, 'terminals.attach', {}, params);
    await assert.rejects(opening, isError('conflict', old));
    await assert.rejects(listPorts(), isError('conflict', old));
  });

  it('pass on only errors that a guest may speak of', async () => {
    const refusal = (code: ErrorCode) => {
      host.fault('callGuest', new ServiceError(code, 'says the guest'), 1);
      host.fault('openStream', new ServiceError(code, 'says the guest'), 1);
    };
    for (const code of ['validation_error', 'not_found', 'conflict', 'disk_full', 'port_not_open'] as const) {
      refusal(code);
      await refusesBoth(code, /says the guest/);
    }
    for (const code of ['unauthenticated', 'rate_limited', 'quota_exceeded', 'shutting_down'] as const) {
      refusal(code);
      await refusesBoth('internal_error', /makes no sense/);
    }
    areFree();
  });

  it('answer what the guest answers only if its shape is right', async () => {
    for (const ports of [[], [80, 443]]) {
      host.guestCalls['ports.list'] = () => ({ ports });
      assert.deepEqual(await listPorts(), { ports });
    }
    for (const odd of [null, 7, {}, { ports: ['x'] }]) {
      host.guestCalls['ports.list'] = () => odd;
      await assert.rejects(listPorts(), isError('internal_error', /makes no sense/));
    }
  });

  it('fail while the host is away, and work again when it is back', async () => {
    host.guestCalls['ports.list'] = () => ({ ports: [] });
    const open1 = await open();
    await host.away();
    await assert.rejects(open1.result, isError('host_unavailable'));
    await refusesBoth('host_unavailable', /Retry later/);
    await host.listen();
    assert.deepEqual(await listPorts(), { ports: [] });
    (await open()).duplex.destroy();
  });

  it('never tell where the host is', () => {
    assert(told.length > 20, 'the tests above have collected errors');
    const { hostAgentSocket } = app.config;
    for (const error of told) {
      const text = JSON.stringify(errorBody(error, 'request-1'));
      for (const secret of [hostAgentSocket, dirname(hostAgentSocket), '.sock', '10.83.', '127.0.0.1', 'x-sandbar'])
        assert(!text.includes(secret), `${text} holds ${secret}`);
    }
  });
});
