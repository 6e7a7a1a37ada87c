// The host agent or the control plane is killed at different moments. Machines and jobs go on undisturbed, and a create
// that was interrupted is either finished or undone.
import assert from 'node:assert/strict';
import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import type { Machine } from '@sandbar/contract/machine.ts';
import type { Snapshot } from '@sandbar/contract/snapshot.ts';
import { restart } from './support/host.ts';
import {
  call,
  createMachine,
  destroyMachine,
  expectStatus,
  getMachine,
  HOME,
  qemuPidOf,
  readAll,
  sh,
  startExec,
  until,
  waitForExec,
} from './support/service.ts';

const LINES = 4000;
const COUNT = `i=0; while [ $i -lt ${LINES} ]; do echo "line $i"; i=$((i+1)); done; sleep 2; echo end`;
const EXPECTED = `${Array.from({ length: LINES }, (_, at) => `line ${at}\n`).join('')}end\n`;

describe('resilience', () => {
  let machine: Machine;
  before(async () => {
    machine = await createMachine();
  });
  after(() => destroyMachine(machine.id));

  for (const name of ['host-agent', 'control-plane'] as const) {
    it(`kill -9 of the ${name} during a job: the VM keeps running, and no byte of output is lost or repeated`, async () => {
      const vm = qemuPidOf(machine.id);
      const job = await startExec(machine.id, { command: COUNT });
      await restart([name], 'SIGKILL');
      await restart([name], 'SIGKILL');
      const ended = await waitForExec(machine.id, job.id);
      assert.deepEqual([ended.status, ended.exit_code], ['exited', 0]);
      assert.equal((await readAll(machine.id, job.id)).toString(), EXPECTED);
      assert.equal(qemuPidOf(machine.id), vm);
      assert.equal((await getMachine(machine.id)).state, 'running');
    });
  }

  for (const name of ['host-agent', 'control-plane'] as const) {
    it(`kill -9 of the ${name} during a create: the create is finished or leaves nothing`, async () => {
      const before = readdirSync(join(HOME, 'machines')).join();
      for (const delayMs of [20, 300, 1200]) {
        const label = `killed-${name}-${delayMs}`;
        const answer = createMachine({ name: label }).then(
          () => 'created',
          () => 'failed',
        );
        await new Promise((resolve) => setTimeout(resolve, delayMs));
        await restart([name], 'SIGKILL');
        await answer;
        await until(
          'settled',
          async () => {
            const { machines } = await expectStatus<{ machines: Machine[] }>(200, 'GET', `/v1/machines?name=${label}`);
            return machines.every(({ state }) => state === 'running');
          },
          60_000,
        );
        const { machines } = await expectStatus<{ machines: Machine[] }>(200, 'GET', `/v1/machines?name=${label}`);
        for (const { id } of machines) {
          assert.equal((await sh(id, 'echo works')).stdout, 'works\n');
          await destroyMachine(id);
        }
        await until('no other machine on the host', () => readdirSync(join(HOME, 'machines')).join() === before);
      }
    });
  }

  for (const name of ['host-agent', 'control-plane'] as const) {
    it(`kill -9 of the ${name} during a snapshot: a retry with the same Idempotency-Key makes it one snapshot (CTL-1)`, async () => {
      const path = `/v1/machines/${machine.id}/snapshots`;
      for (const delayMs of [5, 50, 200]) {
        const headers = { 'idempotency-key': `${name} ${delayMs} ${machine.id}` };
        const send = () => call<Snapshot>('POST', path, { memory: true }, headers);
        const first = send().catch(() => undefined);
        await new Promise((resolve) => setTimeout(resolve, delayMs));
        await restart([name], 'SIGKILL');
        await first;
        let last: Awaited<ReturnType<typeof send>> | undefined;
        await until('answered', async () => {
          last = await send();
          return last.status < 300;
        });
        const { snapshots } = await expectStatus<{ snapshots: Snapshot[] }>(200, 'GET', path);
        assert.deepEqual(snapshots, [last?.body]);
        await expectStatus(204, 'DELETE', `/v1/snapshots/${last?.body.id}`);
      }
    });
  }

  it('a machine whose VM dies gets the state error with a reason, its job is lost, and it can be destroyed', async () => {
    const doomed = await createMachine({ memory_mb: 128 });
    const job = await startExec(doomed.id, { command: 'sleep 1000' });
    process.kill(qemuPidOf(doomed.id), 'SIGKILL');
    await until('error', async () => (await getMachine(doomed.id)).state === 'error', 10_000);
    assert.match((await getMachine(doomed.id)).error ?? '', /QEMU/);
    assert.equal((await waitForExec(doomed.id, job.id, 5000)).status, 'lost');
    assert.equal((await call('POST', `/v1/machines/${doomed.id}/start`)).status, 409);
    await expectStatus(200, 'DELETE', `/v1/machines/${doomed.id}`);
    assert.equal(existsSync(join(HOME, 'machines', doomed.id)), false);
  });
});
