// Tests data volumes of a machine cloned from a template. Needs root and the base image.
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { AgentProcess } from './support/agent-process.ts';

const A = '019a0000-0000-7000-8000-00000000000a';
const B = '019a0000-0000-7000-8000-00000000000b';
const VOLUME = '019a0000-0000-7000-8000-0000000000d0';

describe('volumes of a clone', { skip: process.getuid?.() !== 0, timeout: 300_000 }, () => {
  const agent = new AgentProcess({ SANDBAR_TEMPLATES: '1', SANDBAR_POOL_SIZE: '1' });
  before(() => agent.start());
  after(() => agent.close());

  it('can be attached and detached as in a machine that booted cold, and move between the two', async () => {
    const volumes = [{ volume_id: VOLUME, mount_path: '/data' }];
    await agent.done('PUT', `/v1/volumes/${VOLUME}`, { size_gb: 5 });
    // The agent makes a template of this shape at its first start.
    const size = { memory_mb: 1024, rootfs_size_gb: 10 };
    while (!agent.hasTemplate()) await delay(50);
    await agent.run(A, volumes, size);
    assert.ok(agent.isClone(A));
    await agent.exec(A, 'echo from a clone > /data/file');
    await agent.run(A, [], size);
    await agent.run(B, volumes);
    assert.ok(!agent.isClone(B));
    assert.equal(await agent.exec(B, 'cat /data/file'), 'from a clone\n');
    await agent.run(B);
    await agent.run(A, volumes, size);
    assert.equal(await agent.exec(A, 'cat /data/file'), 'from a clone\n');
    await agent.stop(A, volumes);
    await agent.run(A, volumes, size);
    assert.equal(await agent.exec(A, 'cat /data/file'), 'from a clone\n');
  });
});
