// Makes a template: boots a VM cold with its memory in a file, warms it up, and saves its device state. The VM never
// gets an identity, so clones inherit none. It has no address either, so the firewall drops all traffic of its NIC.
import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { open } from 'node:fs/promises';
import { setTimeout as delay } from 'node:timers/promises';
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { Guest } from '../guest/guest.ts';
import { ensureOverlay } from '../storage/overlay.ts';
import { firstSession } from '../vms/first-session.ts';
import type { VmHost } from '../vms/vm-host.ts';
import { warmUp, warmUpProgram } from '../vms/warm-up.ts';
import type { Shape } from './shape.ts';
import { finishTemplate, type Template, unfinishedPaths } from './template-files.ts';

/**
 * Warm-up rounds before the template is saved. They fill the guest's page cache with the files that an exec reads, and
 * let memory allocators do their first-time work.
 */
const WARM_UP_ROUNDS = 10;
/** After this time in ms the guest thaws by itself, if it was not told to. */
const FREEZE_MS = 10_000;
/**
 * Length of the pause before a template is saved, in ms. The kernel of the guest does some work only a while after a job
 * has ended, such as freeing its control group. Without the pause, each clone would do that work again.
 */
export const SETTLE_MS = 1_000;
/** Time limit for the boot and the warm-up: ten times what they take under emulation. */
const BOOT_PATIENCE_MS = 30_000;

/**
 * Makes the guest write all changes to its disk, by a freeze. Otherwise each clone would have to write them a few seconds
 * later. Throws no `conflict`, because that would mean that this image can have no template.
 */
async function writeChanges(guest: Guest): Promise<void> {
  await guest.freeze(FREEZE_MS).catch((error: Error) => {
    throw new Error(`the disk of the template was not written: ${error.message}`, { cause: error });
  });
  // Whether the guest thaws itself or is told to, the changes are written.
  await guest.thaw().catch((error: unknown) => {
    if (!(error instanceof ServiceError && error.code === 'conflict')) throw error;
  });
}

export type TemplatePlace = {
  templatesDir: string;
  runDir: string;
  name: string;
  patience: number;
  /** {@link SETTLE_MS}, or 0 in tests. */
  settleMs: number;
  abort: AbortSignal;
};

/**
 * Makes a template for machines of this shape and loads it into memory. No folder in `templatesDir` may be called
 * `name`, and no other VM may use `runDir`. Rethrows the error of the step that failed, after deleting the unfinished
 * template; a `conflict` says that the guest agent of this image cannot be saved bare.
 */
export async function makeTemplate(vms: VmHost, place: TemplatePlace, key: string, shape: Shape): Promise<Template> {
  const { image, layerPaths } = shape;
  const base = { imagePath: image.rootfsPath, layerPaths };
  const paths = unfinishedPaths(place.templatesDir, place.name);
  const unclaim = vms.claim(paths.dir);
  try {
    mkdirSync(paths.dir, { recursive: true, mode: 0o700 });
    await ensureOverlay(paths.disk, base, shape.diskGb);
    writeFileSync(paths.memory, '', { mode: 0o600 });
    const memory = await open(paths.memory, 'r+');
    await memory.truncate(shape.memoryMb * 1024 * 1024).finally(() => memory.close());
    const vm = await vms.launch({
      vcpus: shape.vcpus,
      memoryMb: shape.memoryMb,
      diskPath: paths.disk,
      ...base,
      runDir: place.runDir,
      start: { kind: 'boot', ...image, memoryPath: paths.memory, isBare: shape.isBare === true },
    });
    try {
      vm.setBackground(true);
      const signal = AbortSignal.any([place.abort, AbortSignal.timeout(BOOT_PATIENCE_MS * place.patience)]);
      const guest = await firstSession(vm, signal);
      if (shape.isBare) await guest.checkBare();
      await warmUp(guest, warmUpProgram(shape), WARM_UP_ROUNDS, signal);
      if (!shape.isBare) await writeChanges(guest);
      guest.close();
      await guest.closed;
      // Open a new session, so that a clone's first session meets a guest agent that has no request in progress.
      await vm.connectGuest(signal);
      await delay(place.settleMs, undefined, { signal });
      await vm.saveDevices(paths.state);
    } finally {
      await vms.discard(vm);
    }
    return await finishTemplate(place.templatesDir, paths, key, shape);
  } finally {
    rmSync(paths.dir, { recursive: true, force: true });
    unclaim();
  }
}
