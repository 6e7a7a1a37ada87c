// Tests the life of a machine through the API, against real PostgreSQL and a fake host.
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { Machine } from '@sandbar/contract/machine.ts';
import { until } from './support/postgres.ts';
import { checkBooks, startTestBed } from './support/test-bed.ts';

const bed = await startTestBed();
const { api, host, keys } = bed;
const create = async (body: object = {}): Promise<Machine> => {
  const answer = await api<Machine>('POST', '/v1/machines', { body });
  assert.equal(answer.status, 201, answer.text);
  return answer.json;
};

describe('machine create', () => {
  it('answers 201 with the running machine and the documented defaults', async () => {
    const machine = await create();
    assert.equal(machine.state, 'running');
    assert.deepEqual(
      [machine.name, machine.vcpus, machine.memory_mb, machine.rootfs_size_gb, machine.stack, machine.metadata],
      ['', 1, 1024, 10, 'base', {}],
    );
    assert.equal(machine.account_id, bed.accountId);
    assert.equal(machine.isolation, 'emulated');
    assert.match(machine.private_ip ?? '', /^10\.83\.0\.\d+$/);
    assert(machine.started_at && !machine.stopped_at && !machine.destroyed_at);
    assert.equal(host.machines.get(machine.id)?.report.private_ip, machine.private_ip);
  });

  it('takes no body at all, with and without a content type, as an empty object', async () => {
    assert.equal((await api('POST', '/v1/machines')).status, 201);
    assert.equal((await api('POST', '/v1/machines', { headers: { 'content-type': 'application/json' } })).status, 201);
  });

  it('keeps metadata exactly, whatever its keys', async () => {
    const metadata = { a: 1, 'line\nbreak': 'x', nested: { list: [null, true, 1.5, 'ü'] }, '': 'empty' };
    const machine = await create({ metadata });
    assert.deepEqual(machine.metadata, metadata);
    assert.deepEqual((await api('GET', `/v1/machines/${machine.id}`)).json.metadata, metadata);
  });
});

describe('machine stop and start', () => {
  it('stop gives the memory back and keeps the address; start takes it again', async () => {
    const machine = await create({ name: 'cycle' });
    const stopped = await api('POST', `/v1/machines/${machine.id}/stop`);
    assert.equal(stopped.status, 200);
    assert.equal(stopped.json.state, 'stopped');
    assert(stopped.json.stopped_at);
    await checkBooks(bed);
    const started = await api('POST', `/v1/machines/${machine.id}/start`);
    assert.equal(started.json.state, 'running');
    assert.equal(started.json.private_ip, machine.private_ip);
    await checkBooks(bed);
  });

  it('both are idempotent', async () => {
    const { id } = await create();
    const ensures = host.callsOf('ensure');
    assert.equal((await api('POST', `/v1/machines/${id}/start`)).json.state, 'running');
    assert.equal(host.callsOf('ensure'), ensures, 'nothing was asked of the host');
    await api('POST', `/v1/machines/${id}/stop`);
    assert.equal((await api('POST', `/v1/machines/${id}/stop`)).status, 200);
  });

  it('many at once end in one of the two states, with the books in order', async () => {
    const { id } = await create();
    const answers = await Promise.all(
      Array.from({ length: 10 }, (_, index) => api('POST', `/v1/machines/${id}/${index % 2 ? 'start' : 'stop'}`)),
    );
    for (const answer of answers) assert.equal(answer.status, 200, answer.text);
    const { state } = (await api('GET', `/v1/machines/${id}`)).json;
    assert.equal(host.machines.get(id)?.report.status, state);
    await checkBooks(bed);
  });

  it('a machine in state error cannot be started or stopped, and can be deleted', async () => {
    const { id } = await create();
    host.end(id, 'failed', 'QEMU ended with signal 9.');
    await until(async () => (await api('GET', `/v1/machines/${id}`)).json.state === 'error', 'the machine is in error');
    const machine = (await api('GET', `/v1/machines/${id}`)).json;
    assert.equal(machine.error, 'QEMU ended with signal 9.');
    for (const action of ['start', 'stop']) {
      const answer = await api('POST', `/v1/machines/${id}/${action}`);
      assert.deepEqual([answer.status, answer.json.code], [409, 'conflict']);
      assert.match(answer.json.detail, /error/);
    }
    await checkBooks(bed);
    assert.equal((await api('DELETE', `/v1/machines/${id}`)).json.state, 'destroyed');
  });

  it('a guest that powers itself off is stopped, and can be started', async () => {
    const { id } = await create();
    host.end(id, 'stopped', 'The guest powered off.');
    await until(
      async () => (await api('GET', `/v1/machines/${id}`)).json.state === 'stopped',
      'the machine is stopped',
    );
    assert.equal((await api('POST', `/v1/machines/${id}/start`)).json.state, 'running');
  });
});

describe('machine delete', () => {
  it('answers the destroyed machine, then 404, and get still shows it', async () => {
    const { id } = await create();
    const deleted = await api('DELETE', `/v1/machines/${id}`);
    assert.deepEqual([deleted.status, deleted.json.state], [200, 'destroyed']);
    assert(deleted.json.destroyed_at);
    assert.equal((await api('DELETE', `/v1/machines/${id}`)).status, 404);
    assert.equal((await api('GET', `/v1/machines/${id}`)).json.state, 'destroyed');
    assert.equal((await api('POST', `/v1/machines/${id}/start`)).status, 409);
    await checkBooks(bed);
  });

  it('of a stopped machine works too', async () => {
    const { id } = await create();
    await api('POST', `/v1/machines/${id}/stop`);
    assert.equal((await api('DELETE', `/v1/machines/${id}`)).status, 200);
    await checkBooks(bed);
  });

  it('by several callers at once is done once, and each gets its result', async () => {
    const { id } = await create();
    const answers = await Promise.all(Array.from({ length: 5 }, () => api('DELETE', `/v1/machines/${id}`)));
    const statuses = answers.map((answer) => answer.status);
    // A delete that arrives after the machine is destroyed gets 404.
    assert(statuses.includes(200) && statuses.every((status) => status === 200 || status === 404), statuses.join());
    const { json } = await api('GET', `/v1/machines/${id}/activity`);
    const destroyed = json.activity.filter(({ action }: { action: string }) => action === 'machine.destroyed');
    assert.equal(destroyed.length, 1);
  });
});

describe('machine list', () => {
  it('is newest first, without destroyed machines unless asked for', async () => {
    const first = await create({ name: 'listed' });
    const second = await create({ name: 'listed' });
    await api('DELETE', `/v1/machines/${first.id}`);
    const ids = async (query: string) =>
      (await api('GET', `/v1/machines?name=listed${query}`)).json.machines.map((machine: Machine) => machine.id);
    assert.deepEqual(await ids(''), [second.id]);
    assert.deepEqual(await ids('&state=destroyed'), [first.id]);
  });

  it('filters by metadata', async () => {
    const { id } = await create({ metadata: { team: 'red', n: 7, 'a.b': 'dotted' } });
    for (const query of [
      'metadata.team=red',
      'metadata.n=7',
      'metadata.a.b=dotted',
      'metadata.team=red&metadata.n=7',
    ]) {
      const { json } = await api('GET', `/v1/machines?${query}`);
      assert.deepEqual(
        json.machines.map((machine: Machine) => machine.id),
        [id],
        query,
      );
    }
    assert.deepEqual((await api('GET', '/v1/machines?metadata.team=blue')).json.machines, []);
  });

  it('pages without repeating or skipping, and binds a cursor to its list', async () => {
    for (let index = 0; index < 7; index++) await create({ name: 'paged' });
    const whole = (await api('GET', '/v1/machines?name=paged')).json;
    assert.equal(whole.machines.length, 7);
    assert.equal('next_cursor' in whole, false);
    const seen: string[] = [];
    let cursor = '';
    do {
      const query = `name=paged&page_size=3${cursor ? `&cursor=${cursor}` : ''}`;
      const { json } = await api('GET', `/v1/machines?${query}`);
      seen.push(...json.machines.map((machine: Machine) => machine.id));
      cursor = json.next_cursor;
    } while (cursor !== '');
    assert.deepEqual(
      seen,
      whole.machines.map((machine: Machine) => machine.id),
    );
    const { next_cursor } = (await api('GET', '/v1/machines?name=paged&page_size=3')).json;
    const foreign = await api('GET', `/v1/machines?name=other&page_size=3&cursor=${next_cursor}`);
    assert.deepEqual([foreign.status, foreign.json.code], [400, 'validation_error']);
    const stranger = await api('GET', `/v1/machines?name=paged&page_size=3&cursor=${next_cursor}`, { key: keys.other });
    assert.equal(stranger.status, 400);
  });
});

describe('images', () => {
  it('are what the host said it has', async () => {
    assert.deepEqual((await api('GET', '/v1/images')).json.images, host.info.images);
  });
});
