// A control plane with an object store and several hosts. The store is versitygw, and the hosts run the host agent's
// own code with fake VMs, so files really move. Machines keep what a test writes to their disks.
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after } from 'node:test';
import type { HostInfo } from '@sandbar/contract/host-api.ts';
import type { Image } from '@sandbar/contract/image.ts';
import { createLog } from '@sandbar/logging/log.ts';
import { NO_TRACING } from '@sandbar/tracing/tracing.ts';
import { buildServer } from '../../../host-agent/src/http/server.ts';
import { publishImage } from '../../../host-agent/src/images/publish.ts';
import { FakeHost as Agent } from '../../../host-agent/tests/support/fake-host.ts';
import { openObjectStore } from '../../src/blobs/object-store.ts';
import type { Timing } from '../../src/config.ts';
import { CHANNELS, notify } from '../../src/db/notifications.ts';
import { createHostClient } from '../../src/hosts/client.ts';
import { registerHost } from '../../src/hosts/store.ts';
import { FakeHost } from './fake-host.ts';
import { startTestBed, type TestBed } from './test-bed.ts';
import { startVersitygw, type TestStore } from './versitygw.ts';

export type BlobHost = {
  id: string;
  agent: Agent;
  /** While false, the host takes no new machines. */
  setReachable(isReachable: boolean): Promise<void>;
  /** Gives the host an image whose files are made of `text`, and reports it. */
  addImage(stack: string, text: string): Promise<void>;
  /** Gives the host another processor, and resolves when the control plane has asked for it. */
  setProcessor(processor: string): Promise<void>;
};
export type BlobBed = TestBed & { store: TestStore; hosts: BlobHost[]; makeMachine(body?: object): Promise<string> };

const socketOf = (agent: Agent): string => join(agent.dir, 'agent.sock');

/**
 * Starts `count` hosts. `timing` replaces durations of the bed's. Everything is removed after the tests of the file.
 */
export async function startBlobBed(count: number, timing: Partial<Timing> = {}, hasStore = true): Promise<BlobBed> {
  const store = await startVersitygw();
  const sockets = new Map<string, string>();
  const bed = await startTestBed({
    config: { hasLocalHost: false, objectStore: hasStore ? store.config : undefined },
    timing,
    clientOf: ({ id }) => createHostClient({ socketPath: sockets.get(id) ?? assert.fail(`no host ${id}`) }),
  });
  const { db } = bed.plane.app;
  const hosts: BlobHost[] = [];
  for (let index = 0; index < count; index++) {
    const agent = new Agent();
    const id = `019b0000-0000-7000-8000-0000000002${String(index).padStart(2, '0')}`;
    sockets.set(id, socketOf(agent));
    const { info } = new FakeHost(socketOf(agent), { host_id: id, subnet: '10.200.0.0/16', processor: 'the same' });
    const close = await listen(agent, info);
    await registerHost(db, info);
    await db
      .updateTable('hosts')
      .set({ name: `host-${index}`, address: `host-${index}:7072` })
      .where('id', '=', id)
      .execute();
    const addImage = async (stack: string, text: string) => {
      const image = await writeImage(agent.cacheDir, stack, text);
      info.images = [...info.images.filter((one) => one.stack !== stack), image];
      await registerHost(db, info);
      bed.plane.app.hostTable.expire();
    };
    await addImage('base', 'base');
    hosts.push({
      ...{ id, agent, addImage },
      setProcessor: async (processor) => {
        // The control plane asks hosts for their facts again and again, so a change of the row alone would not last.
        info.processor = processor;
        const noted = db.selectFrom('hosts').select('id').where('id', '=', id).where('processor', '=', processor);
        await bed.settled(async () => (await noted.executeTakeFirst()) !== undefined);
        bed.plane.app.hostTable.expire();
      },
      setReachable: async (isReachable) => {
        await db.updateTable('hosts').set({ draining: !isReachable }).where('id', '=', id).execute();
        bed.plane.app.hostTable.expire();
      },
    });
    after(async () => {
      await close();
      await agent.close();
      agent.remove();
    });
  }
  await notify(db, CHANNELS.hosts);
  await notify(db, CHANNELS.leases);
  await bed.settled(() => bed.plane.app.hosts.listenedIds().length === count);
  // Parts of the store are opened by the control plane. It is closed after the control plane.
  after(() => store.close());
  const makeMachine = async (body: object = {}) => {
    const answer = await bed.api('POST', '/v1/machines', { body: { memory_mb: 128, ...body } });
    assert.equal(answer.status, 201, answer.text);
    return answer.json.id as string;
  };
  return { ...bed, store, hosts, makeMachine };
}

async function listen(agent: Agent, info: HostInfo): Promise<() => Promise<void>> {
  agent.kernel = { kernelPath: join(agent.dir, 'kernel'), initramfsPath: join(agent.dir, 'initramfs') };
  writeFileSync(agent.kernel.kernelPath, 'a kernel');
  writeFileSync(agent.kernel.initramfsPath, 'an initramfs');
  const machines = await agent.start();
  const { volumes, dataVolumes, volumeCopies, machineCopies, snapshots, garbage, room, audit, transfers } = agent;
  const server = buildServer(
    {
      ...{ info: () => info, bootId: 'boot-1', machines, volumes, dataVolumes, snapshots, garbage, room, audit },
      ...{ volumeCopies, machineCopies, transfers, registry: agent.metricsRegistry, tracing: NO_TRACING },
    },
    createLog({ process: 'host-agent', level: 'silent' }),
  );
  await server.listen({ path: socketOf(agent) });
  return () => server.close();
}

async function writeImage(cacheDir: string, stack: string, text: string): Promise<Image> {
  const write = (name: string) => {
    const content = `${name} of ${text}`;
    const sha256 = createHash('sha256').update(content).digest('hex');
    const path = join(cacheDir, `${name}-${sha256}`);
    mkdirSync(cacheDir, { recursive: true });
    writeFileSync(path, content);
    return { path, sha256, bytes: content.length };
  };
  const { bytes: _, ...kernel } = write('kernel');
  const { bytes: __, ...initramfs } = write('initramfs');
  const { sha256, ...rootfs } = write('rootfs');
  const about = { stack, description: text, digest: `sha256:${sha256}`, min_rootfs_gb: 1, default: stack === 'base' };
  const files = { kernel: { ...kernel, version: '1' }, initramfs, rootfs: { ...rootfs, format: 'raw' as const } };
  const { image } = await publishImage(cacheDir, { ...about, ...files }, { wasBuilt: true, log: () => undefined });
  return { ...about, architecture: 'x86_64', created_at: image.created_at };
}

/** Opens the store of the bed, as another process would. */
export const openStoreOf = ({ store }: BlobBed) => openObjectStore(store.config);

const EMPTY_BYTES = 256 * 1024;

/** What was written to a machine's disk, in all its layers. */
export function diskText({ agent }: BlobHost, machineId: string): string {
  const dir = join(agent.paths.machines, machineId);
  const { layers } = JSON.parse(readFileSync(join(dir, 'machine.json'), 'utf8'));
  const paths = [...agent.layers.pathsOf(layers), join(dir, 'disk.qcow2')];
  return paths.map((path) => readFileSync(path).subarray(EMPTY_BYTES).toString()).join('');
}

/** Writes to the disk of a machine that runs. */
export function writeDisk({ agent }: BlobHost, machineId: string, text: string): void {
  (agent.hypervisor.running.get(machineId) ?? assert.fail('the machine does not run')).write(text);
}
