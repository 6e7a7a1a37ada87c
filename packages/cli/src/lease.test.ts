// Tests which expiries the lease of a machine sends, and in which order, when the service is slow or fails.
import assert from 'node:assert/strict';
import { afterEach, beforeEach, describe, it, mock } from 'node:test';
import { setImmediate } from 'node:timers/promises';
import type { Machine, MachineUpdate } from '@sandbar/contract/machine.ts';
import { Lease } from './lease.ts';

const LEASE_SEC = 30;
const LEASE = { expires_in_sec: LEASE_SEC, on_expiry: 'destroy' };

let updates: (MachineUpdate & PromiseWithResolvers<Machine>)[];
let clock: number;

const machines = {
  update: (_: string, body: MachineUpdate) => {
    const update = { ...body, ...Promise.withResolvers<Machine>() };
    updates.push(update);
    return update.promise;
  },
};

const sent = () => updates.map(({ expires_in_sec, on_expiry }) => ({ expires_in_sec, on_expiry }));
const succeed = (index: number) => updates[index]?.resolve({} as Machine);
const fail = (index: number) => updates[index]?.reject(new Error('The service does not answer.'));

/** Lets the time of one interval pass. */
function pass(): void {
  clock += (LEASE_SEC / 3) * 1000;
  mock.timers.tick((LEASE_SEC / 3) * 1000);
}

beforeEach(() => {
  updates = [];
  clock = 0;
  mock.method(performance, 'now', () => clock);
  mock.timers.enable({ apis: ['setInterval'] });
});

afterEach(() => {
  mock.timers.reset();
  mock.restoreAll();
});

describe('the lease of a machine', () => {
  it('sends one renewal at a time, and a renewal that had to wait follows at once', async () => {
    const lease = new Lease({}, LEASE_SEC);
    assert.deepEqual(lease.first(), LEASE);
    lease.keep(machines, 'm');
    pass();
    pass();
    assert.deepEqual(sent(), [LEASE]);
    fail(0);
    await setImmediate();
    assert.deepEqual(sent(), [LEASE, LEASE]);
    succeed(1);
    await setImmediate();
    assert.equal(updates.length, 2);
    pass();
    assert.equal(updates.length, 3);
    lease.stop();
  });

  it('sets the wanted expiry after the renewal that is under way, and renews no more', async () => {
    const lease = new Lease({}, LEASE_SEC);
    lease.first();
    lease.keep(machines, 'm');
    pass();
    pass();
    const handingOver = lease.handOver(machines, 'm');
    await setImmediate();
    assert.equal(updates.length, 1);
    succeed(0);
    await setImmediate();
    assert.deepEqual(sent().slice(1), [{ expires_in_sec: null, on_expiry: 'destroy' }]);
    succeed(1);
    await handingOver;
    pass();
    assert.equal(updates.length, 2);
  });

  it('sends the wanted expiry again until the service has accepted it', async () => {
    const lease = new Lease({ expires_in_sec: 38, on_expiry: 'stop' }, LEASE_SEC);
    assert.deepEqual(lease.first(), LEASE);
    lease.keep(machines, 'm');
    pass();
    fail(0);
    await setImmediate();
    const handingOver = lease.handOver(machines, 'm');
    await setImmediate();
    assert.deepEqual(sent(), Array(2).fill({ expires_in_sec: 28, on_expiry: 'stop' }));
    succeed(1);
    await handingOver;
  });

  it('ends when the service has accepted the wanted expiry', async () => {
    const lease = new Lease({ expires_in_sec: 38, on_expiry: 'stop' }, LEASE_SEC);
    lease.first();
    lease.keep(machines, 'm');
    pass();
    succeed(0);
    await setImmediate();
    pass();
    await lease.handOver(machines, 'm');
    assert.equal(updates.length, 1);
  });
});
