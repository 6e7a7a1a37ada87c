// Tests that the vCPUs run exactly when they are neither paused by an operation on the machine nor held by the host, in
// whatever order the two stop and resume them.
import assert from 'node:assert/strict';
import { EventEmitter } from 'node:events';
import { describe, it } from 'node:test';
import type { QmpClient } from '../src/hypervisor/qmp.ts';
import { Vcpus } from '../src/hypervisor/vcpus.ts';
import { until } from './support/fake-host.ts';

/** Answers as QEMU does, after a turn of the event loop, and sends an event for every change. */
class FakeQmp extends EventEmitter {
  state = 'running';
  /** The command that is not answered, once. */
  fails = '';

  async execute(command: string): Promise<unknown> {
    await new Promise((resolve) => setImmediate(resolve));
    if (command === this.fails) {
      this.fails = '';
      throw new Error(`QEMU does not answer ${command}`);
    }
    if (command === 'query-status') return { status: this.state };
    const hasEnded = this.state === 'shutdown';
    if (command === 'stop' && !hasEnded) this.state = 'paused';
    if (command === 'cont') {
      if (hasEnded) throw new Error('Resetting the Virtual Machine is required');
      this.state = 'running';
      this.emit('event', 'RESUME');
    }
    return {};
  }
}

const begin = () => {
  const qmp = new FakeQmp();
  return { qmp, vcpus: new Vcpus(qmp as unknown as QmpClient) };
};

describe('the vCPUs of a VM', () => {
  it('run exactly when they are neither paused nor held, whatever the order (RES-1)', async () => {
    const steps = ['pause', 'resume', 'hold', 'letGo'] as const;
    for (let run = 0; run < 4 ** 5; run++) {
      const { qmp, vcpus } = begin();
      const order = Array.from({ length: 5 }, (_, at) => steps[Math.floor(run / 4 ** at) % 4] ?? 'pause');
      const last = (one: string, other: string) => order.lastIndexOf(one as never) > order.lastIndexOf(other as never);
      for (const step of order) await vcpus[step]();
      const isStill = last('pause', 'resume') || last('hold', 'letGo');
      assert.equal(qmp.state, isStill ? 'paused' : 'running', order.join());
    }
  });

  it('are held and let go at the next attempt when QEMU did not answer the first one (RES-1)', async () => {
    const { qmp, vcpus } = begin();
    qmp.fails = 'stop';
    await assert.rejects(vcpus.hold());
    await vcpus.hold();
    assert.equal(qmp.state, 'paused');
    for (const command of ['query-status', 'cont']) {
      await vcpus.hold();
      qmp.fails = command;
      await assert.rejects(vcpus.letGo());
      assert.equal(qmp.state, 'paused');
      await vcpus.letGo();
      assert.equal(qmp.state, 'running', command);
    }
  });

  it('are reported as held or let go only when QEMU has answered, however often that is asked (RES-1)', async () => {
    const { qmp, vcpus } = begin();
    await Promise.all([vcpus.hold(), vcpus.hold().then(() => assert.equal(qmp.state, 'paused'))]);
    await Promise.all([vcpus.letGo(), vcpus.letGo().then(() => assert.equal(qmp.state, 'running'))]);
    await vcpus.hold();
    qmp.fails = 'cont';
    const both = await Promise.allSettled([vcpus.letGo(), vcpus.letGo()]);
    assert.deepEqual(
      both.map(({ status }) => status),
      ['rejected', 'rejected'],
    );
  });

  it('what QEMU resumes by itself stands still again while it is held (RES-1)', async () => {
    const { qmp, vcpus } = begin();
    await vcpus.hold();
    await qmp.execute('cont');
    await until('stopped again', () => qmp.state === 'paused');
    await vcpus.letGo();
    assert.equal(qmp.state, 'running');
  });

  it('a guest that QEMU stopped at a full disk goes on when nothing holds it, and not before (RES-1)', async () => {
    const { qmp, vcpus } = begin();
    qmp.state = 'io-error';
    await vcpus.hold();
    qmp.state = 'io-error';
    await vcpus.goOn();
    assert.equal(qmp.state, 'io-error');
    await vcpus.letGo();
    assert.equal(qmp.state, 'running');
  });

  it('a hold that comes while the last one ends wins, and a guest that powered off stays off (RES-1)', async () => {
    const { qmp, vcpus } = begin();
    await vcpus.hold();
    await Promise.all([vcpus.letGo(), vcpus.hold()]);
    await until('stopped', () => qmp.state === 'paused');
    qmp.state = 'shutdown';
    await vcpus.letGo();
    assert.equal(qmp.state, 'shutdown');
  });
});
