// A registry on a scratch folder with a fake hypervisor and no network, and a way to make a new agent on the same folder.
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { homePaths } from '@sandbar/contract/home.ts';
import type { HostEvent } from '@sandbar/contract/host-api.ts';
import PQueue from 'p-queue';
import { HostAuditor } from '../../src/audit/host-auditor.ts';
import { MachineRegistry } from '../../src/machines/registry.ts';
import { Starter } from '../../src/machines/starter.ts';
import { parseSubnet } from '../../src/network/subnet.ts';
import { UserNetwork } from '../../src/network/user-network.ts';
import { VolumeStore } from '../../src/storage/volume-store.ts';
import { VmHost } from '../../src/vms/vm-host.ts';
import { FakeHypervisor } from './fake-hypervisor.ts';

export const SPEC = {
  vcpus: 1,
  memory_mb: 128,
  rootfs_size_gb: 1,
  stack: 'base',
  private_ip: '10.200.0.9',
  hostname: 'test',
};

const silent = { info() {}, warn() {}, error() {} };

export class FakeHost {
  readonly dir = mkdtempSync(join(tmpdir(), 'sandbar-host-'));
  readonly hypervisor = new FakeHypervisor();
  readonly network = new UserNetwork(parseSubnet('10.200.0.0/16'));
  readonly events: HostEvent[] = [];
  registry!: MachineRegistry;
  volumes!: VolumeStore;
  audit!: HostAuditor;

  /** A new agent on the same folder, as after `kill -9`. */
  async start(bootId = 'boot-1', outputLimitBytes = 1024 * 1024): Promise<MachineRegistry> {
    // The dead agent's sessions would fight with the new one's.
    await this.registry?.close();
    const imagePath = join(this.dir, 'rootfs.img');
    writeFileSync(imagePath, Buffer.alloc(1024 * 1024));
    mkdirSync(join(this.dir, 'run'), { recursive: true });
    this.volumes = new VolumeStore(join(this.dir, 'volumes'), silent);
    const vms = new VmHost(this.hypervisor, this.network, silent);
    const window = new PQueue({ concurrency: 2 });
    const starter = new Starter({ vms, templates: undefined, pool: undefined, window, patience: 1, log: silent });
    this.registry = new MachineRegistry(
      {
        vms,
        starter,
        bootId,
        machinesDir: join(this.dir, 'machines'),
        runMachinesDir: join(this.dir, 'run/machines'),
        volumes: this.volumes,
        outputLimitBytes,
        log: silent,
      },
      async () => ({ kernelPath: '/kernel', initramfsPath: '/initramfs', rootfsPath: imagePath }),
    );
    this.audit = new HostAuditor(vms, this.registry, homePaths(this.dir));
    this.registry.events.on('event', (event) => this.events.push(event));
    const found = await this.hypervisor.adopt();
    await vms.adopt(found);
    await this.registry.load(found);
    return this.registry;
  }

  remove(): void {
    rmSync(this.dir, { recursive: true, force: true });
  }
}

/** Waits until `isTrue` holds; fails with `what` after 5 s. */
export async function until(what: string, isTrue: () => boolean): Promise<void> {
  const deadline = Date.now() + 5000;
  while (!isTrue()) {
    if (Date.now() > deadline) throw new Error(`not in 5 s: ${what}`);
    await new Promise((resolve) => setImmediate(resolve));
  }
}
