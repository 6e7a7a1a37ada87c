// Tests guest calls and guest streams of the control plane: who may open one, what ends it, and what the client is told.
// The requests go through the host agent's own routes; only the guest is played by the test.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { describe, it } from 'node:test';
import { ServiceError } from '@sandbar/contract/errors.ts';
import { Type } from 'typebox';
import { insertKey } from '../src/api-keys/store.ts';
import { callGuest } from '../src/guest/call.ts';
import { openGuestStream } from '../src/guest/stream.ts';
import { Places } from '../src/http/places.ts';
import type { Caller } from '../src/http/route-config.ts';
import { type PlayedStream, playStream } from './support/guest-stream.ts';
import { startTestBed } from './support/test-bed.ts';

const bed = await startTestBed();
const { api, host, plane } = bed;
const { app } = plane;
const machine: string = (await api('POST', '/v1/machines')).json.id;

async function callerWithKey(name: string, accountId = bed.accountId): Promise<Caller> {
  await insertKey(app.db, accountId, 'full', name);
  const { id } = await app.db.selectFrom('api_keys').select('id').where('name', '=', name).executeTakeFirstOrThrow();
  return { accountId, rates: { mutating: null, exec: null }, scope: 'full', via: 'key', credentialId: id };
}

const caller = await callerWithKey('streams');
const places = new Places(100, 'terminals');

/** Opens a stream to a played guest. */
async function open({
  as = caller,
  on = machine,
  in: counted = places,
  waits = false,
  signal = new AbortController().signal,
} = {}) {
  let played: PlayedStream | undefined;
  host.guestStreams['terminals.attach'] = (_machineId, params) => {
    played = playStream({ asked: params });
    return played;
  };
  const stream = await openGuestStream(app, as, on, 'terminals.attach', { id: 7 }, { waits, places: counted, signal });
  assert(played);
  return { ...stream, played };
}

const isError =
  (code: string, detail = /./) =>
  (error: unknown) =>
    error instanceof ServiceError && error.code === code && detail.test(error.message);

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

  it('ends within a second when its key is revoked, and says so', async () => {
    const as = await callerWithKey('to be revoked');
    const [stream, other] = [await open({ as }), await open()];
    const cut = once(stream.played.guest, 'close');
    await app.db.deleteFrom('api_keys').where('id', '=', as.credentialId).execute();
    await assert.rejects(stream.result, isError('unauthenticated'));
    await cut;
    assert(!other.duplex.destroyed);
    other.duplex.destroy();
  });
});

describe('a guest call', () => {
  it('answers what the guest answers, if its shape is right', async () => {
    host.guestCalls['ports.list'] = () => ({ ports: [] });
    const ports = Type.Object({ ports: Type.Array(Type.Integer()) });
    assert.deepEqual(await callGuest(app, caller, machine, 'ports.list', {}, ports), { ports: [] });
    host.guestCalls['ports.list'] = () => ({ ports: ['x'] });
    await assert.rejects(callGuest(app, caller, machine, 'ports.list', {}, ports), isError('internal_error'));
  });
});
