// One QEMU process: its monitor, its way to the guest agent, and how it came to its end. QEMU runs detached and is
// found again after the agent restarts; nothing here depends on having started it.
import { renameSync } from 'node:fs';
import { setTimeout as delay } from 'node:timers/promises';
import { openSession } from '../guest/channel.ts';
import type { Guest } from '../guest/guest.ts';
import { GuestClient } from '../guest/guest-client.ts';
import { linkIntoRunDirectory } from '../jail/run-links.ts';
import type { MemoryPlace, PluggedFile, SavedMemory, Vm, VmExit } from './driver.ts';
import { plugDisk, pluggedDisks, unplugDisk } from './plug-disk.ts';
import { isAlive, killProcess, type ProcessInfo, waitForExit } from './process.ts';
import { CONSOLE_BYTES, RUN_FILES } from './qemu-args.ts';
import { lastLogLine } from './qemu-log.ts';
import type { QmpClient } from './qmp.ts';
import { RootNodes } from './root-nodes.ts';
import { saveDevices } from './save-devices.ts';
import { saveMemory } from './save-memory.ts';
import { connectUnixWhenReady } from './unix-socket.ts';
import type { VmRecord } from './vm-record.ts';

/** How long QEMU may take to flush its disks and go after `quit`. */
const QUIT_TIMEOUT_MS = 5000;
/** How soon a guest that was paused by a full disk is tried again. */
const RESUME_AFTER_MS = 1000;
/** Characters of a reason that QEMU gives. */
const MAX_REASON = 100;

/** What the hypervisor does for a VM outside its process. */
export type VmOwner = {
  moved(record: VmRecord): void;
  setBackground(isBackground: boolean): void;
  ended(): Promise<void>;
  memoryKills(): number;
};

export class QemuVm implements Vm {
  readonly pid: number;
  readonly exited: Promise<VmExit>;
  readonly #process: ProcessInfo;
  readonly #qmp: QmpClient;
  readonly #root: RootNodes;
  readonly #owner: VmOwner;
  #record: VmRecord;
  #console = '';
  #isAsking = false;
  #mustAskAgain = false;
  #isResumeDue = false;

  constructor(process: ProcessInfo, qmp: QmpClient, record: VmRecord, owner: VmOwner) {
    this.pid = process.pid;
    this.#process = process;
    this.#qmp = qmp;
    this.#root = new RootNodes(qmp);
    this.#record = record;
    this.#owner = owner;
    this.exited = this.#watch();
  }

  get vmId(): string {
    return this.#record.vmId;
  }

  get runDir(): string {
    return this.#record.runDir;
  }

  get channelToken(): string {
    return this.#record.channelToken;
  }

  get templateKey(): string | undefined {
    return this.#record.templateKey ?? undefined;
  }

  async connectGuest(signal: AbortSignal): Promise<Guest> {
    const socket = await connectUnixWhenReady(this.runDir, RUN_FILES.guest, signal, () => !isAlive(this.#process));
    await openSession(socket, this.channelToken, signal);
    return new GuestClient(socket);
  }

  async pause(): Promise<void> {
    await this.#qmp.execute('stop');
  }

  async resume(): Promise<void> {
    await this.#qmp.execute('cont');
  }

  async isPaused(): Promise<boolean> {
    return (await this.#runState()) === 'paused';
  }

  async growDisk(bytes: number): Promise<void> {
    await this.#qmp.execute('block_resize', { 'node-name': 'root', size: bytes });
  }

  async saveDevices(path: string): Promise<void> {
    await saveDevices(this.#qmp, this.runDir, path);
  }

  async plugDisk({ slot, serial, file }: PluggedFile): Promise<void> {
    const { uid, runDir } = this.#record;
    const link = linkIntoRunDirectory(runDir, file, uid === null ? undefined : { uid, gid: uid });
    await plugDisk(this.#qmp, { slot, serial, path: link.name }, () => link.remove());
  }

  async unplugDisk(slot: number): Promise<void> {
    await unplugDisk(this.#qmp, slot);
  }

  async pluggedDisks(): Promise<Map<number, string>> {
    return pluggedDisks(this.#qmp);
  }

  async stageDisk(path: string, layerId: string): Promise<void> {
    const { uid, runDir } = this.#record;
    await this.#root.stage(runDir, uid === null ? undefined : { uid, gid: uid }, path, layerId);
  }

  async switchDisk(layerId: string): Promise<void> {
    await this.#root.switchTo(layerId);
  }

  async isDiskSwitched(layerId: string): Promise<boolean> {
    return this.#root.isSwitchedTo(layerId);
  }

  async unstageDisk(layerId: string): Promise<void> {
    await this.#root.unstage(layerId);
  }

  async flattenDisk(path: string, bytesPerSec: number): Promise<boolean> {
    return this.#root.flatten(path, bytesPerSec);
  }

  async stopFlatten(): Promise<void> {
    await this.#root.stopFlatten();
  }

  async saveMemory(place: MemoryPlace, whileStopped: () => Promise<void>): Promise<SavedMemory> {
    const vm = { process: this.#process, runDir: this.runDir, isClone: this.templateKey !== undefined };
    return saveMemory(this.#qmp, vm, place, whileStopped);
  }

  moveTo(runDir: string): void {
    const record = { ...this.#record, runDir };
    // In this order: an agent that dies between the two finds no process in the directory, and ends it.
    this.#owner.moved(record);
    renameSync(this.runDir, runDir);
    this.#record = record;
  }

  setBackground(isBackground: boolean): void {
    this.#owner.setBackground(isBackground);
  }

  async readConsole(): Promise<string> {
    const text = await this.#qmp.execute('ringbuf-read', { device: 'console', size: CONSOLE_BYTES }).catch(() => '');
    this.#console = (this.#console + (typeof text === 'string' ? text : '')).slice(-CONSOLE_BYTES);
    return this.#console;
  }

  async end(): Promise<void> {
    const abort = new AbortController();
    this.#qmp.execute('quit').catch(() => {});
    await Promise.race([
      waitForExit(this.#process, abort.signal),
      delay(QUIT_TIMEOUT_MS, undefined, { signal: abort.signal }).catch(() => {}),
    ]);
    abort.abort();
    await killProcess(this.#process);
    this.#qmp.close();
    await this.#owner.ended();
  }

  /** Resolves when the guest stops for good or the process dies. */
  async #watch(): Promise<VmExit> {
    const end = await this.#nextEnd();
    if (end.cause === 'rebooted') {
      const panic = /Kernel panic[^\n\r]*/.exec(await this.readConsole())?.[0];
      if (panic) return { cause: 'died', reason: `the guest's kernel panicked: ${panic}` };
    }
    return end;
  }

  #nextEnd(): Promise<VmExit> {
    return new Promise((resolve) => {
      this.#qmp.on('event', (name, data) => {
        if (name === 'SHUTDOWN') resolve(exitOfShutdown(data.reason));
        if (name === 'STOP') void this.#askStatus().then((status) => status && resolve(status));
      });
      this.#qmp.on('close', () => resolve({ cause: 'died', reason: this.#deathReason() }));
      void this.#askStatus().then((status) => status && resolve(status));
    });
  }

  /**
   * `#status`, one question at a time: a hostile QEMU sends events without end. What comes while QEMU is asked may be
   * newer than its answer, so it is asked once more.
   */
  async #askStatus(): Promise<VmExit | undefined> {
    this.#mustAskAgain = this.#isAsking;
    if (this.#isAsking) return undefined;
    this.#isAsking = true;
    let end: VmExit | undefined;
    do {
      this.#mustAskAgain = false;
      end = await this.#status();
    } while (!end && this.#mustAskAgain);
    this.#isAsking = false;
    return end;
  }

  /** The end that QEMU's run state tells of, for what happened while no agent listened. */
  async #status(): Promise<VmExit | undefined> {
    const status = await this.#runState();
    if (status === 'shutdown') return { cause: 'powered-off', reason: 'the machine powered itself off' };
    if (status === 'io-error') void this.#resumeWhenThereIsRoom();
    if (status === 'internal-error')
      return { cause: 'died', reason: 'the hypervisor stopped the machine with an internal error' };
    return undefined;
  }

  async #runState(): Promise<string | undefined> {
    return (Object(await this.#qmp.execute('query-status').catch(() => undefined)) as { status?: string }).status;
  }

  /**
   * QEMU pauses a guest whose write found the host's disk full, and repeats the write when it goes on: the guest sees a
   * pause, no error. A write that fails again pauses it again.
   */
  async #resumeWhenThereIsRoom(): Promise<void> {
    if (this.#isResumeDue) return;
    this.#isResumeDue = true;
    await delay(RESUME_AFTER_MS, undefined, { ref: false });
    this.#isResumeDue = false;
    await this.#qmp.execute('cont').catch(() => {});
  }

  #deathReason(): string {
    if (this.#owner.memoryKills() > 0) return 'its QEMU process reached its memory limit on the host and was killed';
    const last = lastLogLine(this.runDir);
    return last ? `its QEMU process ended by itself: ${last}` : 'its QEMU process ended by itself or was killed';
  }
}

/** `reason` is what QEMU sent: anything, from one that a guest has taken over. */
function exitOfShutdown(reason: unknown): VmExit {
  if (reason === 'guest-shutdown') return { cause: 'powered-off', reason: 'the machine powered itself off' };
  if (reason === 'guest-reset') return { cause: 'rebooted', reason: 'the machine rebooted' };
  if (reason === 'host-signal') return { cause: 'died', reason: 'its QEMU process was ended by a signal on the host' };
  const said = typeof reason === 'string' ? reason.slice(0, MAX_REASON) : 'for no reason that can be read';
  return { cause: 'died', reason: `the machine ended: ${said}` };
}
