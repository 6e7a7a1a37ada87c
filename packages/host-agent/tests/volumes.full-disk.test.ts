// Tests data volumes on a host whose disk is full. Needs root and the base image.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { existsSync, mkdtempSync, rmSync, statfsSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { AgentProcess } from './support/agent-process.ts';

const A = '019a0000-0000-7000-8000-00000000000a';
const VOLUME = '019a0000-0000-7000-8000-0000000000d0';
const ANOTHER = '019a0000-0000-7000-8000-0000000000d1';

describe('volumes on a full disk', { skip: process.getuid?.() !== 0, timeout: 300_000 }, () => {
  const disk = mkdtempSync(join(tmpdir(), 'sandbar-full-'));
  let agent: AgentProcess;
  before(async () => {
    execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=64m', 'tmpfs', disk]);
    agent = new AgentProcess({}, disk);
    await agent.start();
  });
  after(async () => {
    await agent.close();
    execFileSync('umount', [disk]);
    rmSync(disk, { recursive: true });
  });

  it('pause the machine, which continues without data loss when there is space', async () => {
    await agent.done('PUT', `/v1/volumes/${VOLUME}`, { size_gb: 5 });
    await agent.run(A, [{ volume_id: VOLUME, mount_path: '/data' }]);
    const content = 'yes 0123456789abcdef | head -c 100M';
    const written = agent.exec(A, `${content} > /data/big && sync /data/big && ${content} | cmp - /data/big`);
    while (statfsSync(disk).bavail > 0) await delay(20);
    const refused = await agent.call<object>('PUT', `/v1/volumes/${ANOTHER}`, { size_gb: 5 });
    assert.deepEqual([refused.status, refused.body.code], [503, 'fleet_capacity']);
    assert.ok(!existsSync(join(agent.paths.volumes, ANOTHER)));
    assert.equal((await agent.statusOf(A)).status, 'running');
    execFileSync('mount', ['-o', 'remount,size=400m', disk]);
    await written;
    await agent.run(A);
    execFileSync('e2fsck', ['-fn', join(agent.paths.volumes, VOLUME, 'data.raw')], { stdio: 'pipe' });
  });
});
