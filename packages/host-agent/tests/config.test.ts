// Tests the host limits that the agent derives from its environment.
import assert from 'node:assert/strict';
import { totalmem } from 'node:os';
import { describe, it } from 'node:test';
import { readConfig } from '../src/config.ts';

describe('configuration of the host agent', () => {
  const totalMb = Math.floor(totalmem() / 2 ** 20);

  it('all machines together get less memory than the host has, but never less than half of it (RES-5)', () => {
    const { machinesMemoryMb, templateMemoryMb, snapshotMemoryMb } = readConfig({}, 0);
    const rest = totalMb - 1024 - templateMemoryMb - snapshotMemoryMb;
    assert.equal(machinesMemoryMb, Math.max(rest, Math.floor(totalMb / 2)));
    assert.ok(machinesMemoryMb < totalMb);
    const small = readConfig({ SANDBAR_TEMPLATE_MEMORY_MB: String(totalMb) }, 0);
    assert.equal(small.machinesMemoryMb, Math.floor(totalMb / 2));
  });

  it('memory of all machines, disk rate and disk requests can be set, and wrong values are named (RES-5)', () => {
    const env = { SANDBAR_MACHINES_MEMORY_MB: '2048', SANDBAR_DISK_RATE_MB: '50', SANDBAR_DISK_IOPS: '1000' };
    const { machinesMemoryMb, diskRateMb, diskIops } = readConfig(env, 0);
    assert.deepEqual([machinesMemoryMb, diskRateMb, diskIops], [2048, 50, 1000]);
    const { diskRateMb: rate, diskIops: requests } = readConfig({}, 0);
    assert.deepEqual([rate, requests], [undefined, undefined]);
    for (const name of Object.keys(env)) assert.throws(() => readConfig({ [name]: '-1' }, 0), new RegExp(name));
  });

  it('the metrics have an address of their own only if it is set, and a wrong one is named', () => {
    const read = (address: string) => readConfig({ SANDBAR_AGENT_METRICS_LISTEN: address }, 0).metricsListen;
    assert.equal(readConfig({}, 0).metricsListen, undefined);
    assert.deepEqual(read('10.0.0.1:9100'), { host: '10.0.0.1', port: 9100 });
    assert.deepEqual(read('[::1]:9100'), { host: '::1', port: 9100 });
    for (const wrong of ['9100', 'host:99999', '::1:9100']) {
      assert.throws(() => read(wrong), /SANDBAR_AGENT_METRICS_LISTEN must be HOST:PORT/);
    }
  });

  it('KVM uses the processor of the host and the disk threads that it has; other choices are checked', () => {
    const { kvm, hugePages } = readConfig({}, 0);
    assert.deepEqual([kvm, hugePages], [{ cpuModel: 'host', diskIo: 'auto', vhostNet: false }, undefined]);
    const chosen = {
      SANDBAR_CPU_MODEL: 'EPYC-v1',
      SANDBAR_DISK_IO: 'plain',
      SANDBAR_VHOST_NET: '1',
      SANDBAR_HUGE_PAGES: '0',
    };
    const { kvm: other, hugePages: none } = readConfig(chosen, 0);
    assert.deepEqual([other, none], [{ cpuModel: 'EPYC-v1', diskIo: 'plain', vhostNet: true }, false]);
    assert.throws(() => readConfig({ SANDBAR_CPU_MODEL: 'host,svm=on' }, 0), /SANDBAR_CPU_MODEL/);
    assert.deepEqual(readConfig({ SANDBAR_OLD_QEMU: '/opt/a:/opt/b' }, 0).oldQemuPaths, ['/opt/a', '/opt/b']);
    assert.throws(() => readConfig({ SANDBAR_OLD_QEMU: 'qemu' }, 0), /SANDBAR_OLD_QEMU/);
    assert.throws(() => readConfig({ SANDBAR_DISK_IO: 'fast' }, 0), /SANDBAR_DISK_IO/);
  });
});
