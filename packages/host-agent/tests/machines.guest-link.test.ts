// Tests the link to a guest agent: however a session ends, the next session finds the port free, and no guest can make
// the host open sessions endlessly.
import assert from 'node:assert/strict';
import { tmpdir } from 'node:os';
import { after, before, describe, it } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import type { Guest } from '../src/guest/guest.ts';
import type { VmSpec } from '../src/hypervisor/driver.ts';
import { GuestLink } from '../src/machines/guest-link.ts';
import { until } from './support/fake-host.ts';
import { FakeHypervisor } from './support/fake-hypervisor.ts';
import type { FakeVm } from './support/fake-vm.ts';

const SPEC: VmSpec = {
  vmId: '0123456789ab',
  vcpus: 1,
  memoryMb: 128,
  diskPath: '',
  imagePath: '',
  layerPaths: [],
  runDir: tmpdir(),
  nic: { kind: 'user', mac: '', subnet: '', gateway: '', nameServer: '' },
  start: { kind: 'boot', kernelPath: '', initramfsPath: '' },
};

describe('guest link', () => {
  const hypervisor = new FakeHypervisor();
  const links: GuestLink[] = [];
  let vm: FakeVm;
  before(async () => {
    vm = (await hypervisor.launch(SPEC)) as FakeVm;
  });
  after(() => {
    for (const link of links) link.close();
  });
  const open = (onSession: (guest: Guest) => Promise<void>) => {
    const link = new GuestLink(vm, onSession, () => {});
    links.push(link);
    return link;
  };

  it('a session that fails during its set-up is closed, and the next session gets the port', async () => {
    hypervisor.faults.push('listJobs');
    const link = open(async (guest) => void (await guest.listJobs()));
    assert.equal(await link.guest(), vm.session);
    assert.equal(vm.sessions, 2);
    link.close();
    await until('closed', () => vm.session?.isOpen === false);
  });

  it('retries get rarer when a guest ends every session at once', async () => {
    const before = vm.sessions;
    open(async (guest) => guest.close());
    await delay(500);
    const opened = vm.sessions - before;
    assert.ok(opened >= 2 && opened < 8, `${opened} sessions in half a second`);
  });
});
