// The block nodes of a VM's root disk while it runs: putting an empty overlay on top, so that what is below stays as it is,
// and copying a long chain into its top. QEMU is asked how things are, never remembered: it may have outlived an agent.
import type { Owner } from '../jail/run-directory.ts';
import { linkIntoRunDirectory } from '../jail/run-links.ts';
import { syncPath } from '../storage/durable.ts';
import { fileNode, IMAGE_NODE, ROOT_DEVICE, ROOT_NODE } from './qemu-args.ts';
import type { QmpClient } from './qmp.ts';

const FLATTEN_JOB = 'flatten';
const NODE_PREFIX = 'top-';
/** Formats of the root disk: what it began with, the layers below, and what was put on top since. */
const ROOT_NODES = new RegExp(`^(${ROOT_NODE}|layer\\d+|${NODE_PREFIX}[0-9a-f]+)$`);

type BlockDevice = { qdev?: string; inserted?: { 'node-name'?: string } };
type NamedNode = { 'node-name'?: string };
type BlockJob = { device?: string };
/** `reached`: whether the copy is whole. Rejects when it failed. `ignore` is to be called by whoever began to watch. */
type EndOfJob = { reached: Promise<boolean>; ignore: () => void };

export class RootNodes {
  readonly #qmp: QmpClient;
  /** What the staged overlay goes on top of: asked before, for the guest holds still while the disk is switched. */
  #below: string | undefined;
  /** The copy that is to begin, or under way, is not wanted any more. */
  #isStopped = false;

  constructor(qmp: QmpClient) {
    this.#qmp = qmp;
  }

  /** Opens an empty overlay, a file of the agent's, without using it. */
  async stage(runDir: string, owner: Owner, path: string, layerId: string): Promise<void> {
    const node = nodeOf(layerId);
    this.#below = await this.#top();
    const link = linkIntoRunDirectory(runDir, path, owner);
    try {
      await Promise.all([
        this.#qmp.execute('blockdev-add', { driver: 'file', 'node-name': fileNode(node), filename: link.name }),
        this.#qmp.execute('blockdev-add', overlay(node, null)),
      ]);
    } finally {
      link.remove();
    }
  }

  /** What was staged is what the guest writes to from here on. */
  async switchTo(layerId: string): Promise<void> {
    await this.#qmp.execute('blockdev-snapshot', {
      node: this.#below ?? (await this.#top()),
      overlay: nodeOf(layerId),
    });
  }

  async isSwitchedTo(layerId: string): Promise<boolean> {
    return (await this.#top()) === nodeOf(layerId);
  }

  /** Closes what was staged and is not used; nothing to close is no failure. */
  async unstage(layerId: string): Promise<void> {
    await this.#remove(nodeOf(layerId));
  }

  /**
   * Copies all that lies between the top and the image into the top, the file at `path`, at that many bytes a second; resolves
   * when nothing lies between them any more and the file says so by itself (true), or when it was told to stop (false).
   * Throws when QEMU could not, as on a full disk.
   */
  async flatten(path: string, bytesPerSec: number): Promise<boolean> {
    this.#isStopped = false;
    const end = this.#watchJob();
    try {
      const isUnderWay = await this.#isFlattening();
      const top = await this.#top();
      if (!isUnderWay) {
        if (this.#isStopped) return false;
        const args = { 'job-id': FLATTEN_JOB, device: top, 'base-node': IMAGE_NODE, speed: bytesPerSec };
        await this.#qmp.execute('block-stream', args);
      }
      // Whoever said so may have seen no job.
      if (this.#isStopped) await this.#cancel();
      if (!(await end.reached)) return false;
      await this.#makeDurable(top, path);
      await this.#removeUnused();
      return true;
    } finally {
      end.ignore();
    }
  }

  /** Tells a copy to end: {@link flatten} resolves then. What was copied so far does no harm. */
  async stopFlatten(): Promise<void> {
    this.#isStopped = true;
    if (await this.#isFlattening()) await this.#cancel();
  }

  /** Refused when the job has just ended, which is as good. */
  async #cancel(): Promise<void> {
    await this.#qmp.execute('block-job-cancel', { device: FLATTEN_JOB, force: true }).catch(() => {});
  }

  /**
   * A copy that QEMU calls complete is not in the file yet: where its clusters are is known to QEMU's memory alone, and lost
   * with it. To open a node again as it is, is the one documented command that flushes it and says when that failed;
   * `qemu-io flush` answers the same either way. The guest stands still meanwhile, so most is written out before.
   */
  async #makeDurable(node: string, path: string): Promise<void> {
    await syncPath(path);
    await this.#qmp.execute('blockdev-reopen', { options: [overlay(node, IMAGE_NODE)] });
  }

  #watchJob(): EndOfJob {
    const { promise: reached, resolve, reject } = Promise.withResolvers<boolean>();
    reached.catch(() => {});
    const onClose = () => reject(new Error("QEMU's monitor closed"));
    const onEvent = (name: string, { device, error }: Record<string, unknown>) => {
      if (device !== FLATTEN_JOB) return;
      if (name === 'BLOCK_JOB_CANCELLED') resolve(false);
      if (name !== 'BLOCK_JOB_COMPLETED') return;
      if (error === undefined) resolve(true);
      else reject(new Error(`the disk could not be flattened: ${textOf(error)}`));
    };
    this.#qmp.on('event', onEvent).on('close', onClose);
    return { reached, ignore: () => void this.#qmp.off('event', onEvent).off('close', onClose) };
  }

  async #isFlattening(): Promise<boolean> {
    return listOf<BlockJob>(await this.#qmp.execute('query-block-jobs')).some(({ device }) => device === FLATTEN_JOB);
  }

  /** The node that the guest's disk is. */
  async #top(): Promise<string> {
    const devices = listOf<BlockDevice>(await this.#qmp.execute('query-block'));
    // QEMU names a device by its id, or (later builds) by its path.
    const device = devices.find(({ qdev }) => typeof qdev === 'string' && qdev.split('/').includes(ROOT_DEVICE));
    const node = device?.inserted?.['node-name'];
    if (typeof node !== 'string') throw new Error('QEMU does not say what the root disk is');
    return node;
  }

  /** Nodes of the root disk that nothing stands on keep their files open. QEMU refuses to close those in use. */
  async #removeUnused(): Promise<void> {
    const top = await this.#top();
    const nodes = listOf<NamedNode>(await this.#qmp.execute('query-named-block-nodes', { flat: true }));
    const names = nodes.map((node) => String(node['node-name']));
    let unused = names.filter((name) => name !== top && ROOT_NODES.test(name));
    // Each stands on the next, and no answer says in which order.
    for (let left = 0; left !== unused.length; ) {
      left = unused.length;
      const stays = await Promise.all(unused.map((name) => this.#remove(name).then((isGone) => !isGone)));
      unused = unused.filter((_, index) => stays[index]);
    }
  }

  /** Whether the node is gone. */
  async #remove(node: string): Promise<boolean> {
    const remove = (name: string) =>
      this.#qmp.execute('blockdev-del', { 'node-name': name }).then(
        () => true,
        () => false,
      );
    const isGone = await remove(node);
    return (await remove(fileNode(node))) && isGone;
  }
}

/** The options of a node that the guest writes, the same as on the command line; below it `backing`. */
function overlay(node: string, backing: string | null): Record<string, unknown> {
  return { driver: 'qcow2', 'node-name': node, file: fileNode(node), backing, discard: 'unmap' };
}

/** A QEMU that was taken over may answer anything. */
function listOf<T>(answer: unknown): T[] {
  return Array.isArray(answer) ? answer.map((one) => Object(one) as T) : [];
}

/** The name of the overlay that lies on a layer, in the 31 characters that QEMU takes. */
function nodeOf(layerId: string): string {
  return `${NODE_PREFIX}${layerId.replaceAll('-', '').slice(0, 20)}`;
}

function textOf(value: unknown): string {
  return typeof value === 'string' ? value.slice(0, 200) : 'for no reason that can be read';
}
