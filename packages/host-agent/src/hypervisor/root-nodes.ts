// The block nodes of a VM's root disk while it runs: putting an empty overlay on top, so that what is below stays as it is,
// and copying a long chain into its top. QEMU is asked how things are, never remembered: it may have outlived an agent.
import type { Owner } from '../jail/run-directory.ts';
import { linkIntoRunDirectory } from '../jail/run-links.ts';
import { fileNode, IMAGE_NODE, ROOT_DEVICE, ROOT_NODE } from './qemu-args.ts';
import type { QmpClient } from './qmp.ts';

const FLATTEN_JOB = 'flatten';
const NODE_PREFIX = 'top-';
/** Formats of the root disk: what it began with, the layers below, and what was put on top since. */
const ROOT_NODES = new RegExp(`^(${ROOT_NODE}|layer\\d+|${NODE_PREFIX}[0-9a-f]+)$`);

type BlockDevice = { qdev?: string; inserted?: { 'node-name'?: string } };
type NamedNode = { 'node-name'?: string };
type BlockJob = { device?: string };

export class RootNodes {
  readonly #qmp: QmpClient;
  /** What the staged overlay goes on top of: asked before, for the guest holds still while the disk is switched. */
  #below: string | undefined;

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
        this.#qmp.execute('blockdev-add', {
          driver: 'qcow2',
          'node-name': node,
          file: fileNode(node),
          backing: null,
          discard: 'unmap',
        }),
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
   * Copies all that lies between the top and the image into the top, at that many bytes a second; resolves when nothing
   * lies between them any more (true), or when it was told to stop (false). Throws when QEMU could not, as on a full disk.
   */
  async flatten(bytesPerSec: number): Promise<boolean> {
    const end = this.#endOfJob();
    end.catch(() => {});
    if (!(await this.#isFlattening())) {
      const top = await this.#top();
      const args = { 'job-id': FLATTEN_JOB, device: top, 'base-node': IMAGE_NODE, speed: bytesPerSec };
      await this.#qmp.execute('block-stream', args);
    }
    const isFlat = await end;
    if (isFlat) await this.#removeUnused();
    return isFlat;
  }

  /** Resolves when nothing is copied any more; what was copied so far does no harm. */
  async stopFlatten(): Promise<void> {
    const end = this.#endOfJob();
    end.catch(() => {});
    if (!(await this.#isFlattening())) return;
    await this.#qmp.execute('block-job-cancel', { device: FLATTEN_JOB, force: true });
    await end.catch(() => {});
  }

  #endOfJob(): Promise<boolean> {
    return new Promise((resolve, reject) => {
      const settle = (act: () => void) => {
        this.#qmp.off('event', onEvent);
        this.#qmp.off('close', onClose);
        act();
      };
      const onClose = () => settle(() => reject(new Error("QEMU's monitor closed")));
      const onEvent = (name: string, data: Record<string, unknown>) => {
        if (data.device !== FLATTEN_JOB) return;
        if (name === 'BLOCK_JOB_CANCELLED') settle(() => resolve(false));
        if (name !== 'BLOCK_JOB_COMPLETED') return;
        if (data.error === undefined) settle(() => resolve(true));
        else settle(() => reject(new Error(`the disk could not be flattened: ${textOf(data.error)}`)));
      };
      this.#qmp.on('event', onEvent);
      this.#qmp.on('close', onClose);
    });
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
