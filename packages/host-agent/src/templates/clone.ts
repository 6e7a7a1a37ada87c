// A VM that goes on where a template was saved, with a disk of its own: the template's few megabytes are copied, so that a
// machine never depends on a template.
import { constants } from 'node:fs';
import { copyFile, rename, rm } from 'node:fs/promises';
import type { Vm } from '../hypervisor/driver.ts';
import { diskFull, isDiskFull } from '../storage/overlay.ts';
import type { VmHost } from '../vms/vm-host.ts';
import type { Template } from './template-files.ts';

export type ClonePlace = { diskPath: string; runDir: string; privateIp?: string };

/** Throws `fleet_capacity` on a full disk, and like a launch; neither disk nor VM is left then. */
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
