// Changes the block nodes of a VM's root disk while the VM runs: puts an empty overlay on top, after which everything
// below stays unchanged, and copies a long chain of layers into the top file. Each function asks QEMU for its current
// state, because QEMU may have outlived the agent that changed it.
import type { Owner } from '../jail/run-directory.ts';
import { linkIntoRunDirectory } from '../jail/run-links.ts';
import { syncPath } from '../storage/durable.ts';
import { fileNode, IMAGE_NODE, ROOT_DEVICE, ROOT_NODE } from './qemu-args.ts';
import type { QmpClient } from './qmp.ts';

const FLATTEN_JOB = 'flatten';
const NODE_PREFIX = 'top-';
/** Matches the names of the root disk's nodes: the disk at start, the layers below it, and overlays added later. */
const ROOT_NODES = new RegExp(`^(${ROOT_NODE}|layer\\d+|${NODE_PREFIX}[0-9a-f]+)$`);

type BlockDevice = { qdev?: string; inserted?: { 'node-name'?: string } };
type NamedNode = { 'node-name'?: string };
type BlockJob = { device?: string };
/**
 * The end of a copy. `reached` resolves to true when the copy is complete and to false when it was cancelled; it
 * rejects when the copy failed. `ignore` removes the event listeners and must be called.
 */
type EndOfJob = { reached: Promise<boolean>; ignore: () => void };

export class RootNodes {
  readonly #qmp: QmpClient;
  /**
   * The node below the staged overlay. It is looked up before the switch, because the guest is frozen during the
   * switch, which should be short.
   */
  #below: string | undefined;
  /** Set when a copy should stop, or should not even begin. */
  #isStopped = false;

  constructor(qmp: QmpClient) {
    this.#qmp = qmp;
  }

  /** Opens the empty overlay at `path` and gives the file to `owner`. The guest does not use it yet. */
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

  /** Makes the guest write to the overlay staged for `layerId`. */
  async switchTo(layerId: string): Promise<void> {
    await this.#qmp.execute('blockdev-snapshot', {
      node: this.#below ?? (await this.#top()),
      overlay: nodeOf(layerId),
    });
  }

  async isSwitchedTo(layerId: string): Promise<boolean> {
    return (await this.#top()) === nodeOf(layerId);
  }

  /** Closes a staged overlay that is not in use. Does nothing when there is none. */
  async unstage(layerId: string): Promise<void> {
    await this.#remove(nodeOf(layerId));
  }

  /**
   * Copies everything between the top and the image into the top file at `path`, at `bytesPerSec`. Resolves to true
   * when the file depends on the image alone, durably, and to false when {@link stopFlatten} ended the copy. Throws
   * when the copy fails, for example on a full disk.
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
      // stopFlatten may have run before the job began and found no job to cancel.
      if (this.#isStopped) await this.#cancel();
      if (!(await end.reached)) return false;
      await this.#makeDurable(top, path);
      await this.#removeUnused();
      return true;
    } finally {
      end.ignore();
    }
  }

  /** Cancels a copy, so that {@link flatten} resolves to false. Blocks that were copied already do no harm. */
  async stopFlatten(): Promise<void> {
    this.#isStopped = true;
    if (await this.#isFlattening()) await this.#cancel();
  }

  /** Cancels the job. QEMU refuses when the job has just ended, which is fine. */
  async #cancel(): Promise<void> {
    await this.#qmp.execute('block-job-cancel', { device: FLATTEN_JOB, force: true }).catch(() => {});
  }

  /**
   * Makes a complete copy durable. When QEMU reports completion, the addresses of the copied clusters are only in
   * QEMU's memory and would be lost with it. Reopening the node with unchanged options is the only documented command
   * that flushes them and reports a failure; `qemu-io flush` gives the same answer whether the flush worked or not. The
   * guest is paused during the reopen, so syncPath first writes out most of the data, to keep that pause short.
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

  /** Returns the name of the top node, which the guest's disk uses. */
  async #top(): Promise<string> {
    const devices = listOf<BlockDevice>(await this.#qmp.execute('query-block'));
    // QEMU names a device by its id, or (newer versions) by its full path.
    const device = devices.find(({ qdev }) => typeof qdev === 'string' && qdev.split('/').includes(ROOT_DEVICE));
    const node = device?.inserted?.['node-name'];
    if (typeof node !== 'string') throw new Error('QEMU does not say what the root disk is');
    return node;
  }

  /**
   * Closes nodes of the root disk that no other node uses, because they keep files open. QEMU refuses to close nodes in
   * use.
   */
  async #removeUnused(): Promise<void> {
    const top = await this.#top();
    const nodes = listOf<NamedNode>(await this.#qmp.execute('query-named-block-nodes', { flat: true }));
    const names = nodes.map((node) => String(node['node-name']));
    let unused = names.filter((name) => name !== top && ROOT_NODES.test(name));
    // Each node uses the next one, and QEMU removes a node only when no other node uses it. QEMU does not tell their
    // order, so repeat until a round removes nothing.
    for (let left = 0; left !== unused.length; ) {
      left = unused.length;
      const stays = await Promise.all(unused.map((name) => this.#remove(name).then((isGone) => !isGone)));
      unused = unused.filter((_, index) => stays[index]);
    }
  }

  /** Removes a format node and its file node. Returns whether both are gone. */
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

/** The options of a node that the guest writes, the same as on the command line. `backing`: the node below it. */
function overlay(node: string, backing: string | null): Record<string, unknown> {
  return { driver: 'qcow2', 'node-name': node, file: fileNode(node), backing, discard: 'unmap' };
}

/** Returns the list that QEMU sent, each entry as an object. A compromised QEMU may send anything. */
function listOf<T>(answer: unknown): T[] {
  return Array.isArray(answer) ? answer.map((one) => Object(one) as T) : [];
}

/** Returns the name of the overlay node above a layer. QEMU accepts at most 31 characters. */
function nodeOf(layerId: string): string {
  return `${NODE_PREFIX}${layerId.replaceAll('-', '').slice(0, 20)}`;
}

function textOf(value: unknown): string {
  return typeof value === 'string' ? value.slice(0, 200) : 'for no reason that can be read';
}
