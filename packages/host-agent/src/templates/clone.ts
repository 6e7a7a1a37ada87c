// Starts a clone: a VM that continues from a template's saved state with a disk of its own. The disk is a copy of the
// template's (a few megabytes), so no machine depends on a template afterwards. A clone of a bare template uses the
// existing disk of a machine instead.
import { constants } from 'node:fs';
import { copyFile, rename, rm } from 'node:fs/promises';
import type { Vm } from '../hypervisor/driver.ts';
import { diskFull, isDiskFull } from '../storage/overlay.ts';
import type { VmHost, VmPlan } from '../vms/vm-host.ts';
import type { Template } from './template-files.ts';

export type ClonePlace = { diskPath: string; runDir: string; privateIp?: string };

/**
 * Copies the disk and starts the VM. Throws `fleet_capacity` on a full disk, and the errors of {@link VmHost.launch};
 * then neither disk nor VM is left.
 */
export async function launchClone(vms: VmHost, template: Template, place: ClonePlace): Promise<Vm> {
  const { vcpus, memoryMb, image, layerPaths } = template.shape;
  try {
    const partial = `${place.diskPath}.partial`;
    await copyFile(template.diskPath, partial, constants.COPYFILE_FICLONE);
    await rename(partial, place.diskPath);
    const base = { imagePath: image.rootfsPath, layerPaths };
    return await vms.launch({ ...place, ...base, vcpus, memoryMb, start: template.restore });
  } catch (error) {
    for (const path of [place.diskPath, `${place.diskPath}.partial`]) await rm(path, { force: true });
    throw isDiskFull(error) ? diskFull(error) : error;
  }
}

/** What a clone of a bare template needs besides the template: the files and the address of its machine. */
export type BarePlace = Pick<VmPlan, 'diskPath' | 'imagePath' | 'layerPaths' | 'runDir' | 'privateIp'>;

/** Starts a clone of a bare template on an existing disk. Keeps the disk. Throws what {@link VmHost.launch} throws. */
export function launchBareClone(vms: VmHost, template: Template, place: BarePlace): Promise<Vm> {
  const { vcpus, memoryMb } = template.shape;
  return vms.launch({ ...place, vcpus, memoryMb, start: template.restore });
}
