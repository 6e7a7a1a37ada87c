// Moves snapshots of real machines from one host to another through versitygw: the disk boots there, and saved memory
// goes on there. Both agents run as processes with data directories of their own. Needs root and the base image.
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { after, before, describe, it } from 'node:test';
import type { MachineReport } from '@sandbar/contract/host-api.ts';
import {
  type BlobProgress,
  type CopyProgress,
  partCount,
  type SnapshotContent,
  type StoredPart,
} from '@sandbar/contract/host-blobs.ts';
import { type ObjectStore, openObjectStore } from '../../control-plane/src/blobs/object-store.ts';
import { startVersitygw, type TestStore } from '../../control-plane/tests/support/versitygw.ts';
import { AgentProcess } from './support/agent-process.ts';

const [MACHINE, COPY, RESUMED] = ['a', 'b', 'c'].map((end) => `019a0000-0000-7000-8000-00000000000${end}`) as [
  string,
  string,
  string,
];
const [DISK, MEMORY] = ['1', '2'].map((end) => `019a0000-0000-7000-8000-00000000010${end}`) as [string, string];

describe('snapshots of real machines that move', { skip: process.getuid?.() !== 0 }, () => {
  const [from, to] = [new AgentProcess(), new AgentProcess()];
  let store: TestStore;
  let objects: ObjectStore;
  /** The stored parts of all blobs, by the digest of the blob. */
  const stored = new Map<string, (StoredPart & { key: string })[]>();
  before(async () => {
    store = await startVersitygw();
    objects = await openObjectStore(store.config);
    // One after the other, because each chooses a subnet that is free when it starts.
    await from.start();
    await to.start();
  });
  after(async () => {
    objects.close();
    await store.close();
    await from.close();
    await to.close();
  });

  const publish = async (id: string): Promise<SnapshotContent> => {
    const content = await from.done<SnapshotContent>('GET', `/v1/snapshots/${id}/content`);
    for (const { name, sha256, bytes } of content.files) {
      if (stored.has(sha256)) continue;
      const parts: (StoredPart & { key: string })[] = [];
      for (let index = 0; index < partCount(bytes); index++) {
        const key = `${sha256}/${index}-${randomUUID()}`;
        const body = { name, index, url: await objects.signPut(key) };
        parts.push({ key, ...(await from.done<StoredPart>('POST', `/v1/snapshots/${id}/content/parts`, body)) });
      }
      stored.set(sha256, parts);
    }
    return content;
  };
  const bring = async (id: string, content: SnapshotContent): Promise<string[]> => {
    const { missing } = await to.done<CopyProgress>('PUT', `/v1/snapshot-copies/${id}`, content);
    for (const sha256 of missing) {
      const { parts } = await to.done<BlobProgress>('GET', `/v1/blobs/${sha256}`);
      assert.deepEqual(parts, []);
      for (const [index, { key, ...part }] of (stored.get(sha256) ?? assert.fail()).entries()) {
        await to.done('PUT', `/v1/blobs/${sha256}/parts/${index}`, { ...part, url: await objects.signGet(key) });
      }
      const { bytes } = content.files.find((file) => file.sha256 === sha256) ?? assert.fail();
      await to.done('PUT', `/v1/blobs/${sha256}`, { bytes });
    }
    if (missing.length === 0) return [];
    assert.deepEqual((await to.done<CopyProgress>('PUT', `/v1/snapshot-copies/${id}`, content)).missing, []);
    return missing;
  };
  const runFrom = async (id: string, snapshot_id: string) => {
    const spec = { vcpus: 1, memory_mb: 256, rootfs_size_gb: 2, stack: 'base', hostname: 'machine', snapshot_id };
    const wanted = { generation: 1, desired: 'running', spec };
    const { body } = await to.call<MachineReport>('PUT', `/v1/machines/${id}`, wanted);
    assert.equal(body.status, 'running', `${JSON.stringify(body)}\n${to.log()}`);
    return body;
  };
  const nameOf = (content: SnapshotContent, sha256: string) => content.files.find((one) => one.sha256 === sha256)?.name;

  it('a disk boots on the other host; the image is not fetched when that host has the same', async () => {
    await from.run(MACHINE);
    await from.exec(
      MACHINE,
      'echo kept > /root/file; sync; (while :; do date +%s > /dev/shm/alive; sleep 0.2; done) > /dev/null 2>&1 &',
    );
    await from.done('PUT', `/v1/machines/${MACHINE}/snapshots/${DISK}`, { generation: 1, memory: false });
    const content = await publish(DISK);
    const missing = await bring(DISK, content);
    assert.deepEqual(
      missing.map((sha256) => nameOf(content, sha256)?.split('/')[0]),
      ['layer'],
    );
    await from.exec(MACHINE, 'echo changed > /root/file; sync');
    await runFrom(COPY, DISK);
    assert.equal(await to.exec(COPY, 'cat /root/file'), 'kept\n');
    await to.exec(COPY, 'echo own > /root/own; sync');
    assert.deepEqual(await to.findings(), []);
  });

  it('the processes of saved memory go on on the other host', async () => {
    await from.done('PUT', `/v1/machines/${MACHINE}/snapshots/${MEMORY}`, { generation: 1, memory: true });
    const content = await publish(MEMORY);
    await bring(MEMORY, content);
    const { start_path } = await runFrom(RESUMED, MEMORY);
    assert.equal(start_path, 'resume');
    const before = Number(await to.exec(RESUMED, 'cat /dev/shm/alive'));
    await to.exec(
      RESUMED,
      `n=0; while [ "$(cat /dev/shm/alive)" = ${before} ]; do n=$((n+1)); [ $n -lt 200 ]; sleep 0.1; done`,
    );
    assert.equal(await to.exec(RESUMED, 'cat /root/file'), 'changed\n');
  });

  it('machines outlive the copies, also over a restart of the agent', async () => {
    for (const id of [DISK, MEMORY]) await to.done('DELETE', `/v1/snapshot-copies/${id}`);
    await to.kill();
    await to.start();
    assert.equal(await to.exec(COPY, 'cat /root/own'), 'own\n');
    assert.deepEqual(await to.findings(), []);
  });
});
