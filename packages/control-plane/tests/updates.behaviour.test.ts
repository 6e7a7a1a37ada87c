// Tests of PATCH on a machine: which fields can be changed, which stay, and who may not change them. The expiry is
// tested in `expiry.behaviour.test.ts`.
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { afterEach, describe, it } from 'node:test';
import type { Machine } from '@sandbar/contract/machine.ts';
import { checkAll } from './support/in-order.ts';
import { until } from './support/postgres.ts';
import { type CallOptions, startTestBed } from './support/test-bed.ts';

const bed = await startTestBed();
const { api, host, keys } = bed;
afterEach(() => host.heal());

const METADATA = { team: 'blue', run: 7, tags: ['a', { b: null }] };
const create = async (): Promise<Machine> => {
  const answer = await api('POST', '/v1/machines', { body: { memory_mb: 128, name: 'first', metadata: METADATA } });
  assert.equal(answer.status, 201, answer.text);
  return answer.json;
};
const patch = (id: string, body: unknown, options: CallOptions = {}) =>
  api('PATCH', `/v1/machines/${id}`, { body, ...options });
const getMachine = async (id: string): Promise<Machine> => (await api('GET', `/v1/machines/${id}`)).json;

describe('PATCH of a machine', () => {
  it('changes the name, and nothing else', async () => {
    const made = await create();
    const { status, json } = await patch(made.id, { name: 'second' });
    assert.equal(status, 200);
    assert.deepEqual(json, { ...made, name: 'second' });
    assert.deepEqual(await getMachine(made.id), json);
    assert.equal((await patch(made.id, { name: '' })).json.name, '');
  });

  it('replaces the metadata as a whole, and nothing else', async () => {
    const made = await create();
    const { status, json } = await patch(made.id, { metadata: { only: [1, 'ü', false] } });
    assert.equal(status, 200);
    assert.deepEqual(json, { ...made, metadata: { only: [1, 'ü', false] } });
    assert.deepEqual((await patch(made.id, { metadata: {} })).json.metadata, {});
  });

  it('is found under its new name and metadata, and not under the old', async () => {
    const { id } = await create();
    const name = `renamed-${randomUUID()}`;
    await patch(id, { name, metadata: { mark: name } });
    for (const query of [`name=${name}`, `metadata.mark=${name}`]) {
      const { machines } = (await api('GET', `/v1/machines?${query}`)).json;
      assert.deepEqual(
        machines.map((machine: Machine) => machine.id),
        [id],
      );
    }
    const { machines } = (await api('GET', '/v1/machines?name=first')).json;
    assert(!machines.some((machine: Machine) => machine.id === id));
  });

  it('without a field, or without a body, changes nothing', async () => {
    const made = await create();
    for (const options of [{ body: {} }, {}] as CallOptions[]) {
      const { status, json, text } = await api('PATCH', `/v1/machines/${made.id}`, options);
      assert.equal(status, 200, text);
      assert.deepEqual(json, made);
    }
  });

  it('asks its host for nothing, and tells the feed nothing', async () => {
    const { id } = await create();
    const feed = (await api('GET', `/v1/machines/${id}/activity`)).json;
    const calls = host.callsOf('ensure');
    await host.away();
    assert.equal((await patch(id, { name: 'while its host is away' })).status, 200);
    await host.listen();
    assert.equal(host.callsOf('ensure'), calls);
    assert.deepEqual((await api('GET', `/v1/machines/${id}/activity`)).json, feed);
    await bed.settled(() => bed.plane.app.hosts.reachableIds().length === 1);
  });

  const BAD: [body: unknown, words: RegExp][] = [
    [{ vcpus: 2 }, /^Unknown field "vcpus"; allowed are name, metadata, expires_in_sec, on_expiry\.$/],
    [{ env: {} }, /^Unknown field "env"/],
    [{ name: 7 }, /^name must be a string/],
    [{ name: null }, /^name must be a string/],
    [{ name: 'x'.repeat(256) }, /^name must be a string of at most 255 characters/],
    [{ metadata: null }, /^metadata must be an object/],
    [{ metadata: [] }, /^metadata must be an object/],
    [{ metadata: Object.fromEntries(Array.from({ length: 65 }, (_, key) => [key, 1])) }, /^metadata must be .*64/],
    [{ metadata: { much: 'x'.repeat(16_384) } }, /^metadata must be at most 16384 bytes as JSON\.$/],
    [[], /^The body must be an object/],
  ];
  for (const [body, words] of BAD) {
    it(`is a 400 that says why: ${JSON.stringify(body).slice(0, 60)}`, async () => {
      const made = await create();
      const { status, json } = await patch(made.id, body);
      assert.deepEqual([status, json.code], [400, 'validation_error']);
      assert.match(json.detail, words);
      assert.deepEqual(await getMachine(made.id), made);
    });
  }

  it('changes nothing when one of its fields is refused', async () => {
    const made = await create();
    assert.equal((await patch(made.id, { name: 'half', metadata: { much: 'x'.repeat(16_384) } })).status, 400);
    assert.deepEqual(await getMachine(made.id), made);
  });

  it('is refused to a key that may only read', async () => {
    const made = await create();
    const { status, json } = await patch(made.id, { name: 'read' }, { key: keys.read });
    assert.deepEqual([status, json.code], [403, 'forbidden']);
    assert.equal((await patch(made.id, { name: 'nobody' }, { key: null })).status, 401);
    assert.deepEqual(await getMachine(made.id), made);
  });

  it('of another account’s machine is a 404 like that of an absent one', async () => {
    const made = await create();
    const foreign = await patch(made.id, { name: 'stolen' }, { key: keys.other });
    const absent = await patch(randomUUID(), { name: 'absent' }, { key: keys.other });
    assert.deepEqual([foreign.status, foreign.json], [404, absent.json]);
    assert.equal((await patch('no-uuid', { name: 'x' })).status, 404);
    assert.deepEqual(await getMachine(made.id), made);
  });

  it('of a destroyed machine is a 404 that says since when', async () => {
    const { id } = await create();
    const { destroyed_at } = (await api('DELETE', `/v1/machines/${id}`)).json;
    const { status, json } = await patch(id, { name: 'late' });
    assert.deepEqual([status, json.code], [404, 'not_found']);
    assert(json.detail.includes(destroyed_at), json.detail);
    assert.equal((await getMachine(id)).name, 'first');
  });

  it('is a 409 while the machine is being destroyed', async () => {
    const { id } = await create();
    host.fault('delete', 'hang', 1);
    const destroying = api('DELETE', `/v1/machines/${id}`);
    await until(async () => (await getMachine(id)).operation?.kind === 'destroy', 'it is being destroyed', 60_000);
    const { status, json } = await patch(id, { name: 'late' });
    assert.deepEqual([status, json], [409, { detail: 'The machine is being deleted.', code: 'conflict' }]);
    host.release();
    assert.equal((await destroying).json.name, 'first');
    await checkAll(bed);
  });

  it('is done while the machine is being stopped, and stays', async () => {
    const { id } = await create();
    host.fault('ensure', 'hang', 1);
    const stopping = api('POST', `/v1/machines/${id}/stop`);
    await until(async () => (await getMachine(id)).operation?.kind === 'stop', 'it is being stopped', 60_000);
    const { status, json } = await patch(id, { name: 'meanwhile', metadata: { meanwhile: true } });
    assert.deepEqual([status, json.state, json.operation.kind], [200, 'running', 'stop']);
    host.release();
    const stopped = (await stopping).json;
    assert.deepEqual([stopped.state, stopped.name, stopped.metadata], ['stopped', 'meanwhile', { meanwhile: true }]);
    await checkAll(bed);
  });
});
