// One QEMU process: commands through its monitor, sessions with its guest agent, and the reason why it ended. QEMU runs
// detached and outlives the agent, so nothing here assumes that this agent started it.
import { renameSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { setTimeout as delay } from 'node:timers/promises';
import type { Guest, GuestConnector } from '../guest/guest.ts';
import { linkIntoRunDirectory } from '../jail/run-links.ts';
import { readDeviceState } from './device-state.ts';
import type { MemoryPlace, MemorySave, PluggedFile, Vm, VmExit } from './driver.ts';
import { plugDisk, pluggedDisks, unplugDisk } from './plug-disk.ts';
import { isAlive, killProcess, type ProcessInfo, waitForExit } from './process.ts';
import { CONSOLE_BYTES, RUN_FILES } from './qemu-args.ts';
import { lastLogLine } from './qemu-log.ts';
import type { QmpClient } from './qmp.ts';
import { argumentsOfProcess, describeNeeds, type ResumeNeeds, seriesOfAnswer } from './resume-needs.ts';
import { RootNodes } from './root-nodes.ts';
import { prepareMemory } from './save-memory.ts';
import { Vcpus } from './vcpus.ts';
import type { VmRecord } from './vm-record.ts';

/** How long QEMU may take after `quit` to flush its disks and exit. */
const QUIT_TIMEOUT_MS = 5000;
/** When the host's disk is full, QEMU pauses the guest. The guest is resumed after this delay. */
const RESUME_AFTER_MS = 1000;
/** Longest reason text taken from QEMU, in characters. */
const MAX_REASON = 100;

/** What the hypervisor does for a VM outside the QEMU process: record, CPU priority, clean-up, memory limit. */
export type VmOwner = {
  /** Loads the saved state of a VM that was launched with `waits`. Undefined: the VM has its state already. */
  load?: (() => Promise<void>) | undefined;
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
  readonly #vcpus: Vcpus;
  readonly #owner: VmOwner;
  readonly #guests: GuestConnector;
  #record: VmRecord;
  /** Undefined when the VM has its state. */
  #load: (() => Promise<void>) | undefined;
  #console = '';
  #isAsking = false;
  #mustAskAgain = false;
  #isResumeDue = false;

  constructor(process: ProcessInfo, qmp: QmpClient, record: VmRecord, owner: VmOwner, guests: GuestConnector) {
    this.pid = process.pid;
    this.#process = process;
    this.#qmp = qmp;
    this.#root = new RootNodes(qmp);
    this.#vcpus = new Vcpus(qmp);
    this.#record = record;
    this.#owner = owner;
    this.#load = owner.load;
    this.#guests = guests;
    this.exited = this.#watch();
  }

  get vmId(): string {
    return this.#record.vmId;
  }

  get runDir(): string {
    return this.#record.runDir;
  }

  get templateKey(): string | undefined {
    return this.#record.templateKey ?? undefined;
  }

  async begin(): Promise<void> {
    await this.#load?.();
    this.#load = undefined;
  }

  async connectGuest(signal: AbortSignal): Promise<Guest> {
    const address = { dir: this.runDir, name: RUN_FILES.guest, token: this.#record.channelToken };
    return this.#guests.connect(address, signal, () => !isAlive(this.#process));
  }

  async pause(): Promise<void> {
    await this.#vcpus.pause();
  }

  async resume(): Promise<void> {
    await this.#vcpus.resume();
  }

  async isPaused(): Promise<boolean> {
    return (await this.#vcpus.runState()) === 'paused';
  }

  async hold(): Promise<void> {
    // A `stop` before the state is loaded would keep the VM from ever running. Its guest does not run yet anyway.
    if (this.#load || this.#vcpus.isHeld) return;
    // A flatten copies layers into the VM's disk even while the vCPUs are stopped, so it must stop too.
    await Promise.all([this.#vcpus.hold(), this.#root.stopFlatten()]);
  }

  async letGo(): Promise<void> {
    await this.#vcpus.letGo();
  }

  async growDisk(bytes: number): Promise<void> {
    await this.#qmp.execute('block_resize', { 'node-name': 'root', size: bytes });
  }

  async saveDevices(path: string): Promise<void> {
    await this.#qmp.execute('stop');
    await writeFile(path, await readDeviceState(this.#qmp, this.runDir), { flag: 'wx', mode: 0o600 });
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

  async prepareMemory(place: MemoryPlace): Promise<MemorySave> {
    const vm = { process: this.#process, runDir: this.runDir, isClone: this.templateKey !== undefined };
    return prepareMemory(this.#qmp, vm, place);
  }

  async resumeNeeds(): Promise<ResumeNeeds> {
    const { pid, executable } = this.#process;
    return describeNeeds(seriesOfAnswer(await this.#qmp.execute('query-version')), executable, argumentsOfProcess(pid));
  }

  moveTo(runDir: string): void {
    const record = { ...this.#record, runDir };
    // The record is written first. If the agent dies between the two steps, the next agent finds no process in the
    // recorded directory and ends the VM.
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

  /**
   * Resolves when the guest powers off or reboots, or when the process dies. A reboot after a kernel panic counts as
   * died.
   */
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
   * Calls `#status`, but only one call at a time, because a hostile QEMU can send endless events. An event that arrives
   * during a call may be newer than QEMU's answer, so `#status` is then called again.
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

  /**
   * Returns the end that QEMU's run state shows, if the VM has ended. It covers ends that happened while no agent was
   * connected.
   */
  async #status(): Promise<VmExit | undefined> {
    const status = await this.#vcpus.runState();
    if (status === 'shutdown') return { cause: 'powered-off', reason: 'the machine powered itself off' };
    if (status === 'io-error') void this.#resumeWhenThereIsRoom();
    if (status === 'internal-error')
      return { cause: 'died', reason: 'the hypervisor stopped the machine with an internal error' };
    return undefined;
  }

  /**
   * Resumes a guest that QEMU paused because the host's disk was full. QEMU repeats the failed write, so the guest sees
   * a delay and no error. If the write fails again, QEMU pauses the guest again.
   */
  async #resumeWhenThereIsRoom(): Promise<void> {
    if (this.#isResumeDue) return;
    this.#isResumeDue = true;
    await delay(RESUME_AFTER_MS, undefined, { ref: false });
    this.#isResumeDue = false;
    await this.#vcpus.goOn().catch(() => {});
  }

  #deathReason(): string {
    if (this.#owner.memoryKills() > 0)
      return 'its QEMU process was killed because it, or all machines together, reached a memory limit of the host';
    const last = lastLogLine(this.runDir);
    return last ? `its QEMU process ended by itself: ${last}` : 'its QEMU process ended by itself or was killed';
  }
}

/** Translates the reason in QEMU's SHUTDOWN event. A compromised QEMU may send any value. */
function exitOfShutdown(reason: unknown): VmExit {
  if (reason === 'guest-shutdown') return { cause: 'powered-off', reason: 'the machine powered itself off' };
  if (reason === 'guest-reset') return { cause: 'rebooted', reason: 'the machine rebooted' };
  if (reason === 'host-signal') return { cause: 'died', reason: 'its QEMU process was ended by a signal on the host' };
  const said = typeof reason === 'string' ? reason.slice(0, MAX_REASON) : 'for no reason that can be read';
  return { cause: 'died', reason: `the machine ended: ${said}` };
}
