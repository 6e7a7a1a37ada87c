// A hypervisor without real VMs. Tests use it to make any step fail or hang. The end-to-end tests check the same
// behaviour with real VMs.
import { existsSync, mkdirSync, readFileSync } from 'node:fs';
import type { Hypervisor, HypervisorInventory, Restore, Vm, VmSpec } from '../../src/hypervisor/driver.ts';
import type { ResumeChoice, ResumeNeeds } from '../../src/hypervisor/resume-needs.ts';
import { FakeVm } from './fake-vm.ts';
import { isMarked, writeMark } from './marked-memory.ts';
import { never } from './mortal.ts';

export type FaultPoint =
  | 'launch'
  | 'begin'
  | 'connectGuest'
  | 'checkBare'
  | 'warmUp'
  | 'lease'
  | 'setIdentity'
  | 'startJob'
  | 'listJobs'
  | 'mountVolume'
  | 'unmountVolume'
  | 'plugDisk'
  | 'unplugDisk'
  | 'freeze'
  | 'thaw'
  | 'holdProcesses'
  | 'releaseProcesses'
  | 'saveDevices'
  | 'prepareMemory'
  | 'catchUpMemory'
  | 'saveMemory'
  | 'completeMemory'
  | 'pause'
  | 'resume'
  | 'growDisk'
  | 'stageDisk'
  | 'switchDisk'
  | 'isDiskSwitched'
  | 'unstageDisk'
  | 'flattenDisk'
  | 'moveTo'
  | 'end'
  | 'attach'
  | 'assign'
  | 'detach';

/** Fake pids start above every pid that the kernel assigns, so that a signal never hits a real process. */
const FIRST_PID = 100_000_000;

export class FakeHypervisor implements Hypervisor {
  readonly isolation = 'emulated';
  fingerprint = 'fake';
  /** The version of QEMU that this host has now. VMs keep the version that they were launched with. */
  qemu = '7.2';
  /** Older versions that the host has kept. */
  oldQemus: string[] = [];
  /** Running VMs by the name of their run directory: the machine's id, or the pool's name for a clone. */
  readonly running = new Map<string, FakeVm>();
  readonly launched: VmSpec[] = [];
  /** Each entry makes the next call of that step fail once. */
  readonly faults: FaultPoint[] = [];
  /** Every call of a step, oldest first. */
  readonly passed: FaultPoint[] = [];
  /** Descriptions of steps that should never have happened. */
  readonly violations: string[] = [];
  /** Called before and after each step. If it returns true, the agent dies at that point. */
  isFatal: (point: FaultPoint, when: 'before' | 'after') => boolean = () => false;
  /** Whether this call of the step fails. Tests use it for faults that depend on earlier steps. */
  isFaulty: (point: FaultPoint, isClone: boolean) => boolean = () => false;
  /** Returns the error of a failing step. */
  newFault: (point: FaultPoint) => Error = (point) => new Error(`forced fault: ${point}`);
  /** Returns the address that the network has assigned to a VM. */
  addressOf: ((vmId: string) => string | undefined) | undefined;
  /** If true, a VM from a memory snapshot still holds its processes when it gets its new identity, as it should. */
  staysHeld = true;
  /** If false, the guest agent is an old one that cannot wait for its disk. */
  canBeBare = true;
  /** If false, the guest agent is an old one whose leases have no names. */
  canBeClaimed = true;
  readonly #holds = new Map<FaultPoint, Promise<void>>();

  async resumeChoices(): Promise<ResumeChoice[]> {
    return [this.qemu, ...this.oldQemus].map((qemu) => ({ qemuPath: `/qemu-${qemu}`, has: needsOf(qemu) }));
  }

  reserveUid(): undefined {
    return undefined;
  }

  launch(spec: VmSpec): Promise<Vm> {
    const start = async () => {
      if (spec.start.kind === 'restore') {
        await spec.start.memoryReady;
        this.#checkTemplate(spec.start);
      }
      mkdirSync(spec.runDir, { recursive: true });
      if (spec.start.kind === 'boot' && spec.start.memoryPath) writeMark(spec.start.memoryPath);
      this.launched.push(spec);
      const vm = new FakeVm(this, spec, FIRST_PID + this.launched.length);
      if ([...this.running.values()].some((other) => other.diskFile !== undefined && other.diskFile === vm.diskFile))
        this.violations.push(`two VMs have the disk ${spec.diskPath}`);
      this.running.set(vm.name, vm);
      if (spec.start.kind === 'boot' || !spec.start.waits) vm.checkAddress('launch');
      return vm;
    };
    return this.step('launch', start, spec.start.kind === 'restore');
  }

  async release(vmId?: string): Promise<void> {
    for (const [name, vm] of this.running) if (vm.vmId === vmId) this.running.delete(name);
  }

  inventory(): HypervisorInventory {
    const vms = [...this.running.values()];
    const ids = vms.map(({ vmId }) => vmId);
    const processes = vms.map(({ pid, runDir }) => ({
      pid,
      cwd: runDir,
      executable: 'qemu-system-fake',
      startTicks: '',
    }));
    return { processes, cgroups: ids, records: ids };
  }

  /** Returns the running VMs. Like the real hypervisor, it first drops VMs whose run directory has disappeared. */
  async adopt(): Promise<Vm[]> {
    for (const [name, vm] of this.running) if (!existsSync(vm.runDir)) this.running.delete(name);
    return [...this.running.values()];
  }

  /** Makes each call of step `point` wait until the test calls the returned function. */
  hold(point: FaultPoint): () => void {
    let release = () => {};
    this.#holds.set(
      point,
      new Promise((resolve) => {
        release = resolve;
      }),
    );
    return () => {
      this.#holds.delete(point);
      release();
    };
  }

  async step<T>(point: FaultPoint, effect: () => T | Promise<T>, isClone = false): Promise<T> {
    this.passed.push(point);
    if (this.isFatal(point, 'before')) return never;
    await this.#holds.get(point);
    this.fault(point, isClone);
    const result = await effect();
    return this.isFatal(point, 'after') ? never : result;
  }

  fault(point: FaultPoint, isClone = false): void {
    const at = this.faults.indexOf(point);
    if (at >= 0) this.faults.splice(at, 1);
    if (at >= 0 || this.isFaulty(point, isClone)) throw this.newFault(point);
  }

  /**
   * Records a violation unless the descriptor refers to a template's memory file. If the agent had closed it too early,
   * the number could belong to another file, and the guest would get that file's content as its memory.
   */
  #checkTemplate({ memoryFd, statePath }: Restore): void {
    if (!isMarked(memoryFd)) this.violations.push('a VM was restored from memory that is no template');
    if (!readFileSync(statePath, 'utf8').startsWith('devices of')) throw new Error('the state cannot be loaded');
  }
}

/** What a VM of this version of QEMU needs of the host that resumes it. */
export function needsOf(qemu: string): ResumeNeeds {
  return { qemu, program: 'qemu-fake', hardware: ['-machine fake'], tscKhz: 1_000_000, processor: [] };
}
