// Tests what the agent finds out about a host before it starts VMs with KVM. The trials run the real QEMU in the real
// jail; no guest runs.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { chmodSync, existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { kvmAbilities, opensWithIoUring, VHOST_DEVICE } from '../src/hypervisor/host-abilities.ts';
import { allowHugePages } from '../src/hypervisor/huge-pages.ts';
import { NoJail } from '../src/jail/no-jail.ts';
import { JailFixture, QEMU } from './support/jailed.ts';

describe('abilities of a KVM host', { skip: process.getuid?.() !== 0 }, () => {
  let fixture: JailFixture;
  let runDir: string;
  before(async () => {
    fixture = await JailFixture.open();
    runDir = join(fixture.home, 'run/trial');
  });
  after(() => fixture.close());
  const chosen = { cpuModel: 'host', diskIo: 'auto', vhostNet: false } as const;
  const host = () => ({ jail: fixture.jail, qemuPath: QEMU, runDir, hasTaps: true });

  it('io_uring is used if a jailed QEMU can open a file with it, and nothing of the trial is left', async () => {
    const setting = '/proc/sys/kernel/io_uring_disabled';
    const isAllowed = existsSync(setting) && readFileSync(setting, 'utf8').trim() === '0';
    const hasSupport = readFileSync(QEMU).includes('io_uring_setup');
    assert.equal(await opensWithIoUring(host()), isAllowed && hasSupport);
    assert.equal(existsSync(runDir), false);
    assert.deepEqual(fixture.jail.listVmIds(), []);
  });

  it('a QEMU that cannot open a file with it uses threads', async () => {
    const program = join(fixture.home, 'qemu');
    writeFileSync(
      program,
      '#!/bin/sh\necho "aio=io_uring was specified, but is not supported in this build" >&2; exit 1\n',
    );
    chmodSync(program, 0o755);
    const trial = { jail: new NoJail(fixture.home), qemuPath: program, runDir };
    assert.equal(await opensWithIoUring(trial), false);
  });

  it('the root disk has a thread of its own also where QEMU has no io_uring', async () => {
    const { usesDiskThread } = await kvmAbilities(chosen, host());
    assert.equal(usesDiskThread, true);
  });

  it('an operator can refuse io_uring and the thread', async () => {
    const { usesDiskThread, usesIoUring } = await kvmAbilities({ ...chosen, diskIo: 'plain' }, host());
    assert.deepEqual([usesDiskThread, usesIoUring], [false, false]);
  });

  it('vhost-net that was asked for and is not there is an error, not a silent change', async () => {
    const withoutTaps = kvmAbilities({ ...chosen, vhostNet: true }, { ...host(), hasTaps: false });
    await assert.rejects(withoutTaps, /SANDBAR_VHOST_NET=1, but/);
    if (existsSync(VHOST_DEVICE)) return;
    await assert.rejects(kvmAbilities({ ...chosen, vhostNet: true }, host()), /modprobe vhost_net/);
  });
});

describe('huge pages', () => {
  /** Whether the kernel may use huge pages for a process that starts now (proc_pid_status(5)). */
  const isAllowedForChild = () => {
    const { stdout } = spawnSync('grep', ['THP_enabled', '/proc/self/status'], { encoding: 'utf8' });
    return stdout.trim().split(/\s+/)[1] === '1';
  };

  it('are refused or allowed to every process that starts afterwards', () => {
    for (const isAllowed of [false, true, false]) {
      allowHugePages(isAllowed);
      assert.equal(isAllowedForChild(), isAllowed);
    }
  });
});
