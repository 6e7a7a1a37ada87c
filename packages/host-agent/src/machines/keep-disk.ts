// A root disk outlives its machine: what a delete that keeps the disk does before the machine's folder goes.
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { runCommand } from '../run-command.ts';
import type { LayerStore } from '../storage/layers.ts';
import { ensureOverlay } from '../storage/overlay.ts';
import type { VolumeStore } from '../storage/volume-store.ts';
import type { MachineRecord } from './record.ts';

/** A machine's root disk, in its folder. */
export const DISK = 'disk.qcow2';

type Leaving = { id: string; dir: string };

/**
 * Makes the disk of a machine that no longer runs a volume. One that never ran gets the empty disk it would have run
 * from. Does nothing when the machine's folder is gone: then it was done before. Throws like {@link VolumeStore.keep}.
 */
export async function keepDisk(
  { volumes, layers: store }: { volumes: VolumeStore; layers: LayerStore },
  volumeId: string,
  machine: Leaving,
  record: MachineRecord,
): Promise<void> {
  const { spec, image, layers } = record;
  if (!existsSync(machine.dir)) return;
  const diskPath = join(machine.dir, DISK);
  const base = { imagePath: image.rootfsPath, layerPaths: store.pathsOf(layers) };
  if (!volumes.has(volumeId)) await ensureOverlay(diskPath, base, spec.rootfs_size_gb);
  const { stack, rootfs_size_gb: size_gb } = spec;
  await volumes.keep(volumeId, diskPath, { kind: 'root', size_gb, machine_id: machine.id, stack, image, layers });
}

/** The same for a folder whose record a crash of the host destroyed: the disk itself says how large it is. */
export async function keepDiskWithoutRecord(volumes: VolumeStore, volumeId: string, machine: Leaving): Promise<void> {
  const diskPath = join(machine.dir, DISK);
  if (!existsSync(diskPath)) return;
  const size_gb = Math.ceil((await readVirtualBytes(diskPath)) / 1024 ** 3);
  await volumes.keep(volumeId, diskPath, {
    kind: 'root',
    size_gb,
    machine_id: machine.id,
    stack: null,
    image: null,
    layers: null,
  });
}

async function readVirtualBytes(diskPath: string): Promise<number> {
  const text = await runCommand('qemu-img', ['info', '-f', 'qcow2', '--output=json', diskPath]);
  return (JSON.parse(text) as { 'virtual-size': number })['virtual-size'];
}
