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
});
