// Creates, uses and destroys machines through the SDK. It also inspects their QEMU processes, to check that a machine
// that the API reports as isolated by `kvm` really uses KVM.
import assert from 'node:assert/strict';
import { readdirSync, readFileSync, readlinkSync } from 'node:fs';
import { homePaths } from '@sandbar/contract/home.ts';
import type { Machine } from '@sandbar/contract/machine.ts';
import { Client } from '@sandbar/sdk/client.ts';
import { readCredentials } from '@sandbar/service/credentials.ts';
import { clonesReady } from './clone-pool.ts';
import { disksAndSnapshots } from './disks-and-snapshots.ts';
import { outputOf, step, stepsDone } from './steps.ts';

const SHAPE = { memory_mb: 256, rootfs_size_gb: 2 };

/** A service, and what its QEMU processes show in /proc. */
type Expected = { env: NodeJS.ProcessEnv; executable: RegExp; uses: readonly string[] };

export const DEFAULTS: Expected = { env: {}, executable: /\/qemu-system-x86_64-microvm$/, uses: [] };
export const WITH_MORE: Expected = {
  env: { SANDBAR_QEMU: 'qemu-system-x86_64', SANDBAR_VHOST_NET: '1' },
  executable: /\/qemu-system-x86_64$/,
  uses: ['anon_inode:[io_uring]', '/dev/vhost-net'],
};

/** Runs all steps against the service of a data directory. Returns their number. Throws at the first failure. */
export async function lifeOfMachines(home: string, expected: Expected): Promise<number> {
  const stepsBefore = stepsDone();
  const credentials = readCredentials(`${home}/credentials.json`);
  if (credentials === undefined) throw new Error(`${home}/credentials.json is missing`);
  const sandbar = new Client({ baseUrl: credentials.base_url, apiKey: credentials.api_key });
  const run = (machine: Machine, command: string) => outputOf(sandbar, machine.id, command);

  const first = await step('create', () => sandbar.machines.create({ ...SHAPE, name: 'first' }));
  await step('the machine is isolated by KVM', async () => {
    const shown = await sandbar.machines.get(first.id);
    assert.equal(shown.state, 'running');
    assert.equal(shown.isolation, 'kvm');
    const { executable, descriptors, uid, args, status } = processOf(home, first);
    assert.match(executable, expected.executable);
    assert.ok(descriptors.includes('anon_inode:kvm-vm'), `a virtual machine of KVM among ${descriptors.join(' ')}`);
    assert.notEqual(uid, '0');
    assert.match(status, /^THP_enabled:\s+1$/m, 'the kernel may use huge pages');
    assert.ok(args.includes('host,vmx=off,svm=off,pmu=off'), args.join(' '));
    assert.ok(args.includes('iothread,id=disk'), args.join(' '));
    for (const use of expected.uses) assert.ok(descriptors.includes(use), `${use} among ${descriptors.join(' ')}`);
    assert.ok(args.includes('-kernel'), 'the first machine of its size boots cold');
  });
  await step('exec', async () => {
    const text = await run(
      first,
      'echo hello; echo data > /root/kept; sync; dmesg | grep -o "Hypervisor detected: KVM"; grep -cwE "svm|vmx" /proc/cpuinfo || true',
    );
    assert.equal(text, 'hello\nHypervisor detected: KVM\n0\n', 'KVM is there, and the guest has none of its own');
  });

  await step('clones are ready', () => clonesReady(home));
  const second = await step('create another', () => sandbar.machines.create({ ...SHAPE, name: 'second' }));
  await step('it is a clone', async () => {
    const { args, descriptors } = processOf(home, second);
    assert.ok(args.includes('-incoming'), args.join(' '));
    for (const use of ['anon_inode:kvm-vm', ...expected.uses])
      assert.ok(descriptors.includes(use), `${use} among ${descriptors.join(' ')}`);
  });
  await step('the two differ in machine id, boot id, host name and randomness', async () => {
    const identity =
      'cat /etc/machine-id /proc/sys/kernel/random/boot_id; hostname; head -c 16 /dev/urandom | od -An -tx1';
    const [a, b] = [await run(first, identity), await run(second, identity)];
    assert.equal(a.split('\n').length, b.split('\n').length);
    for (const [index, line] of a.trim().split('\n').entries()) assert.notEqual(line, b.split('\n')[index]);
  });

  await step('stop', async () => assert.equal((await sandbar.machines.stop(first.id)).state, 'stopped'));
  await step('start', async () => assert.equal((await sandbar.machines.start(first.id)).state, 'running'));
  await step('the disk was kept', async () => assert.equal(await run(first, 'cat /root/kept'), 'data\n'));

  await disksAndSnapshots(sandbar, first, second);

  for (const { id } of [first, second]) {
    await step('delete', () => sandbar.machines.destroy(id));
    assert.equal((await sandbar.machines.get(id)).state, 'destroyed');
  }
  await step('no machine is left', async () => assert.deepEqual(await sandbar.machines.list(), []));
  return stepsDone() - stepsBefore;
}

/** Reads from /proc the executable, open descriptors, status and arguments of a running machine's QEMU. */
function processOf(home: string, machine: Machine) {
  const pid = readFileSync(`${homePaths(home).runMachines}/${machine.id}/qemu.pid`, 'utf8').trim();
  const openOnes = readdirSync(`/proc/${pid}/fd`);
  const status = readFileSync(`/proc/${pid}/status`, 'utf8');
  return {
    executable: readlinkSync(`/proc/${pid}/exe`),
    descriptors: openOnes.map((fd) => readlinkSync(`/proc/${pid}/fd/${fd}`)),
    uid: /^Uid:\s+(\d+)/m.exec(status)?.[1],
    status,
    args: readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0'),
  };
}
