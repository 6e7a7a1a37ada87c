// Machines outlive the host agent. A new agent after a kill or an upgrade takes over all running machines unchanged,
// and leaves no process, tap, rule or file that belongs to no machine.
import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { resolve } from 'node:path';
import { after, before, describe, it } from 'node:test';
import type { Exec } from '@sandbar/contract/exec.ts';
import type { Machine } from '@sandbar/contract/machine.ts';
import { waitForDoctor } from '@sandbar/test-runner/doctor.ts';
import { takeAddressNext } from './support/addresses.ts';
import { createClones } from './support/clones.ts';
import {
  auditHost,
  hostInfo,
  IS_ROOT,
  pinnedTaps,
  qemuPids,
  restart,
  runDirOf,
  tapOf,
  taps,
  vmOf,
  vmRecords,
} from './support/host.ts';
import {
  createMachine,
  destroyMachine,
  expectStatus,
  getMachine,
  HOME,
  pidOf,
  qemuPidOf,
  readAll,
  sh,
  startExec,
  until,
  untilItTakesJobs,
  waitForExec,
} from './support/service.ts';

const CHECKOUT = resolve(import.meta.dirname, '..', '..');
const SMALL = { memory_mb: 256, rootfs_size_gb: 2 };
/** Shell script that prints 3000 numbers fast, then one every 10 ms until the file /root/end exists, then `end`. */
const COUNTER = `rm -f /root/end; i=0; while [ $i -lt 3000 ]; do i=$((i+1)); echo $i; done
while [ ! -e /root/end ]; do i=$((i+1)); echo $i; sleep 0.01; done; echo end`;

describe('re-adoption', {
  skip: !IS_ROOT && 'only a service with root has taps, rules and uids for each machine',
}, () => {
  const machines: Machine[] = [];
  before(async () => {
    // The pool can get full only if the template of this size was finished before the agent is killed.
    machines.push(...(await createClones(3, 2, SMALL)));
  });
  after(() => Promise.all(machines.map(({ id }) => destroyMachine(id))));

  for (const [what, names, signal] of [
    ['kill -9 of the host agent and the control plane', ['host-agent', 'control-plane'], 'SIGKILL'],
    ['an upgrade of the host agent', ['host-agent'], 'SIGTERM'],
  ] as const) {
    it(`${what} leaves VMs, jobs, uids, taps and rules as they were, and nothing else (NET-4, CTL-3)`, async () => {
      const jobs = await Promise.all(machines.map(({ id }) => startExec(id, { command: COUNTER })));
      const before = machines.map(factsOf);
      await restart(names, signal);
      // A new control plane answers requests before it has reached the agent. Until then execs are 503.
      for (const { id } of machines) await untilItTakesJobs(id);
      assert.deepEqual(machines.map(factsOf), before);
      for (const { id } of machines) assert.equal((await getMachine(id)).state, 'running');

      await Promise.all(machines.map(({ id }) => sh(id, 'touch /root/end')));
      for (const [at, { id }] of machines.entries()) await assertCounted(id, jobs[at]);
      await assertNothingStray();

      const next = await createMachine(SMALL);
      try {
        assert.equal((await sh(next.id, 'echo works')).stdout, 'works\n');
        assert.equal(
          new Set([...machines, next].map(({ id }) => vmOf(id).uid)).size,
          machines.length + 1,
          'every machine has a uid of its own',
        );
      } finally {
        await destroyMachine(next.id);
      }
    });
  }

  it('clones in the pool outlive two kills of the host agent, and can still become machines', async () => {
    await until('the pool is full', async () => {
      const { pool } = await hostInfo();
      return pool !== undefined && pool.ready > 0 && pool.ready >= pool.target;
    });
    const pooled = () =>
      vmRecords().flatMap(({ runDir, vmId }) => (runDir.startsWith(`${HOME}/run/pool/`) ? [vmId] : []));
    const before = pooled();
    for (let killed = 0; killed < 2; killed++) await restart(['host-agent'], 'SIGKILL');
    // A new agent does not know which shapes were in demand. It keeps clones of the default shape and discards the
    // others.
    const kept = pooled().filter((vmId) => before.includes(vmId));
    assert.ok(kept.length > 0, `${before} became ${pooled()}`);
    await assertNothingStray();
    const machine = await createMachine({ memory_mb: 1024, rootfs_size_gb: 10 });
    try {
      assert.ok(before.includes(vmOf(machine.id).vmId), 'the machine is a clone that was in the pool before the kills');
      const [hostname, machineId] = (await sh(machine.id, 'hostname; cat /etc/machine-id')).stdout.trim().split('\n');
      assert.equal(hostname, `m-${machineId?.slice(-12)}`);
    } finally {
      await destroyMachine(machine.id);
    }
  });

  it('what ends while no agent is there is found ended: error with a reason and its job lost, or stopped with its address (CTL-6)', async () => {
    const [doomed, sleepy] = await Promise.all([createMachine(SMALL), createMachine(SMALL)]);
    try {
      const job = await startExec(doomed.id, { command: 'sleep 1000' });
      await sh(sleepy.id, 'echo kept > /root/kept; sync');
      const powerOff = 'import ctypes, time; time.sleep(0.3); ctypes.CDLL(None).reboot(0x4321fedc)';
      await startExec(sleepy.id, { argv: ['python3', '-c', powerOff] });
      process.kill(pidOf('host-agent'), 'SIGKILL');
      process.kill(qemuPidOf(doomed.id), 'SIGKILL');

      await until('error', async () => (await getMachine(doomed.id)).state === 'error');
      assert.match((await getMachine(doomed.id)).error ?? '', /\w/);
      assert.equal((await waitForExec(doomed.id, job.id)).status, 'lost');
      await until('stopped', async () => (await getMachine(sleepy.id)).state === 'stopped');
      await assertNothingStray();
      assert.equal((await getMachine(doomed.id)).state, 'error');
      for (const { id } of [doomed, sleepy]) assert.equal(existsSync(runDirOf(id)), false, 'no VM is in its place');

      // A stopped machine keeps its address, although the next agent's address counter points at it.
      await takeAddressNext(sleepy.private_ip ?? '');
      const next = await createMachine(SMALL);
      machines.push(next);
      assert.notEqual(next.private_ip, sleepy.private_ip);
      const pins = [...pinnedTaps().values()];
      assert.ok(!pins.some((pin) => pin.endsWith(` ${sleepy.private_ip}`)), 'no clone in the pool has the address');
      const started = await expectStatus<Machine>(200, 'POST', `/v1/machines/${sleepy.id}/start`);
      assert.equal(started.private_ip, sleepy.private_ip);
      const { stdout } = await sh(sleepy.id, 'cat /root/kept; ip -4 -o address show eth0');
      assert.match(stdout, new RegExp(`^kept\\n.* inet ${sleepy.private_ip}/`));
    } finally {
      await Promise.all([doomed, sleepy].map(({ id }) => destroyMachine(id)));
    }
  });
});

/** Properties of a running machine that a restart of the host agent must not change. */
function factsOf({ id }: Machine) {
  const { vmId, uid } = vmOf(id);
  const tap = tapOf(id);
  return { id, vmId, uid, qemu: qemuPidOf(id), isPlugged: taps().includes(tap), rules: pinnedTaps().get(tap) };
}

/**
 * Checks that `COUNTER` exited with 0 and that its output has every number once, in order, and `end` as its last line.
 */
async function assertCounted(machineId: string, job: Exec | undefined): Promise<void> {
  assert.ok(job);
  const ended = await waitForExec(machineId, job.id);
  assert.deepEqual([ended.status, ended.exit_code], ['exited', 0]);
  const lines = (await readAll(machineId, job.id)).toString().split('\n');
  const count = lines.length - 2;
  assert.ok(count >= 3000);
  assert.deepEqual(lines, [...Array.from({ length: count }, (_, at) => String(at + 1)), 'end', '']);
}

/**
 * Checks that nothing is left over on the host: the host agent's audit and `sandbar doctor` find nothing, and every
 * QEMU process has a record.
 */
async function assertNothingStray(): Promise<void> {
  let found: unknown;
  await until('the audit of the host finds nothing', async () => {
    found = (await auditHost()).findings;
    return Array.isArray(found) && found.length === 0;
  }).catch((error: unknown) => assert.fail(`${error}: ${JSON.stringify(found)}`));
  assert.equal(await waitForDoctor(CHECKOUT, HOME), undefined);
  await until('every QEMU has a record', () => {
    const known = new Set(vmRecords().map((record) => record.process?.pid));
    return qemuPids().every((pid) => known.has(pid));
  });
}
