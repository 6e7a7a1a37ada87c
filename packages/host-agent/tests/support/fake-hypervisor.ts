// A hypervisor without machines, for forcing faults: any step can be made to fail or hang. The end-to-end tests show the
// same behaviour on real ones.
import { EventEmitter, once } from 'node:events';
import { mkdirSync, renameSync, writeFileSync } from 'node:fs';
import { basename } from 'node:path';
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { OutputStream } from '@sandbar/contract/exec.ts';
import type { Guest, GuestIdentity, GuestJob, JobFrame, StreamOffsets } from '../../src/guest/guest.ts';
import type { Hypervisor, HypervisorInventory, Vm, VmExit, VmSpec } from '../../src/hypervisor/driver.ts';

export type FaultPoint =
  | 'launch'
  | 'connectGuest'
  | 'rehearse'
  | 'setIdentity'
  | 'startJob'
  | 'listJobs'
  | 'saveDevices'
  | 'pause'
  | 'resume';

export class FakeHypervisor implements Hypervisor {
  readonly isolation = 'emulated';
  fingerprint = 'fake';
  /** VMs that run now, by the name of their run directory: a machine's id, or what the pool calls its clone. */
  readonly running = new Map<string, FakeVm>();
  readonly launched: VmSpec[] = [];
  /** Each entry fails the next pass through its step once. */
  readonly faults: FaultPoint[] = [];

  reserveUid(): undefined {
    return undefined;
  }

  async launch(spec: VmSpec): Promise<Vm> {
    this.fault('launch');
    mkdirSync(spec.runDir, { recursive: true });
    this.launched.push(spec);
    const vm = new FakeVm(this, spec);
    this.running.set(vm.name, vm);
    return vm;
  }

  async release(): Promise<void> {}

  inventory(): HypervisorInventory {
    return { processes: [], cgroups: [], records: [] };
  }

  async adopt(): Promise<Vm[]> {
    return [...this.running.values()];
  }

  fault(point: FaultPoint): void {
    const at = this.faults.indexOf(point);
    if (at < 0) return;
    this.faults.splice(at, 1);
    throw new Error(`forced fault: ${point}`);
  }
}

export class FakeVm implements Vm {
  readonly vmId: string;
  readonly pid = 0;
  readonly channelToken: string;
  readonly templateKey: string | undefined;
  readonly exited: Promise<VmExit>;
  readonly jobs = new Map<string, FakeJob>();
  runDir: string;
  isHeld = false;
  isInBackground = false;
  diskBytes: number | undefined;
  identity: GuestIdentity | undefined;
  session: FakeGuest | undefined;
  /** Sessions that were opened so far. */
  sessions = 0;
  readonly #hypervisor: FakeHypervisor;
  #exit!: (exit: VmExit) => void;

  constructor(hypervisor: FakeHypervisor, { vmId, runDir, start }: VmSpec) {
    this.#hypervisor = hypervisor;
    this.vmId = vmId;
    this.runDir = runDir;
    this.channelToken = start.kind === 'restore' ? start.channelToken : `token of ${vmId}`;
    this.templateKey = start.kind === 'restore' ? start.templateKey : undefined;
    this.exited = new Promise((resolve) => {
      this.#exit = resolve;
    });
  }

  get name(): string {
    return basename(this.runDir);
  }

  /** Like QEMU's socket, a second client is not answered while the first is connected. */
  async connectGuest(): Promise<Guest> {
    this.#hypervisor.fault('connectGuest');
    if (this.session?.isOpen) throw new Error('the port is taken by an earlier session');
    if (this.isHeld) throw new Error('a paused guest answers nobody');
    this.sessions++;
    this.session = new FakeGuest(this, this.#hypervisor);
    return this.session;
  }

  async readConsole(): Promise<string> {
    return 'fake console';
  }

  async pause(): Promise<void> {
    this.#hypervisor.fault('pause');
    this.isHeld = true;
  }

  async resume(): Promise<void> {
    this.#hypervisor.fault('resume');
    this.isHeld = false;
  }

  async isPaused(): Promise<boolean> {
    return this.isHeld;
  }

  async growDisk(bytes: number): Promise<void> {
    this.diskBytes = bytes;
  }

  async saveDevices(path: string): Promise<void> {
    this.#hypervisor.fault('saveDevices');
    writeFileSync(path, `devices of ${this.vmId}`);
  }

  moveTo(runDir: string): void {
    renameSync(this.runDir, runDir);
    this.#hypervisor.running.delete(this.name);
    this.runDir = runDir;
    this.#hypervisor.running.set(this.name, this);
  }

  setBackground(isBackground: boolean): void {
    this.isInBackground = isBackground;
  }

  async end(): Promise<void> {
    this.#hypervisor.running.delete(this.name);
    this.session?.close();
  }

  exitByItself(exit: VmExit): void {
    this.#exit(exit);
  }
}

/** A job whose output and end the test decides. */
export class FakeJob {
  readonly changes = new EventEmitter<{ change: [] }>().setMaxListeners(0);
  readonly output: Record<OutputStream, Buffer> = { stdout: Buffer.alloc(0), stderr: Buffer.alloc(0) };
  end: GuestJob | undefined;
  acknowledged: StreamOffsets = { stdout: 0, stderr: 0 };

  print(stream: OutputStream, text: string): void {
    this.output[stream] = Buffer.concat([this.output[stream], Buffer.from(text)]);
    this.changes.emit('change');
  }

  finish(id: string, outcome: Partial<GuestJob> = {}): void {
    this.end = {
      id,
      status: 'exited',
      exitCode: 0,
      signal: null,
      stdoutBytes: this.output.stdout.length,
      stderrBytes: this.output.stderr.length,
      truncated: false,
      ...outcome,
    };
    this.changes.emit('change');
  }
}

export class FakeGuest implements Guest {
  readonly closed: Promise<void>;
  readonly #vm: FakeVm;
  readonly #hypervisor: FakeHypervisor;
  readonly #over = new AbortController();

  constructor(vm: FakeVm, hypervisor: FakeHypervisor) {
    this.#vm = vm;
    this.#hypervisor = hypervisor;
    this.closed = new Promise((resolve) => this.#over.signal.addEventListener('abort', () => resolve()));
  }

  async rehearse(): Promise<void> {
    this.#hypervisor.fault('rehearse');
  }

  async setIdentity(identity: GuestIdentity): Promise<void> {
    this.#hypervisor.fault('setIdentity');
    this.#vm.identity = identity;
  }

  async startJob(jobId: string): Promise<AsyncIterable<JobFrame>> {
    this.#over.signal.throwIfAborted();
    if (!this.#vm.jobs.has(jobId)) this.#vm.jobs.set(jobId, new FakeJob());
    this.#hypervisor.fault('startJob');
    return this.followJob(jobId, { stdout: 0, stderr: 0 });
  }

  async followJob(jobId: string, offsets: StreamOffsets): Promise<AsyncIterable<JobFrame>> {
    const job = this.#vm.jobs.get(jobId);
    if (!job) throw new ServiceError('not_found', 'no such job');
    return this.#frames(job, { ...offsets });
  }

  async acknowledgeOutput(jobId: string, offsets: StreamOffsets): Promise<void> {
    const job = this.#vm.jobs.get(jobId);
    if (job) job.acknowledged = offsets;
  }

  async cancelJob(jobId: string): Promise<void> {
    this.#vm.jobs.get(jobId)?.finish(jobId, { status: 'canceled', exitCode: null, signal: 'SIGTERM' });
  }

  get isOpen(): boolean {
    return !this.#over.signal.aborted;
  }

  async listJobs(): Promise<GuestJob[]> {
    this.#hypervisor.fault('listJobs');
    return [...this.#vm.jobs].map(([id, job]) => job.end ?? runningJob(id));
  }

  async forgetJob(jobId: string): Promise<void> {
    this.#vm.jobs.delete(jobId);
  }

  async powerOff(): Promise<void> {
    this.#vm.exitByItself({ cause: 'powered-off', reason: 'asked to' });
  }

  close(): void {
    this.#over.abort();
  }

  async *#frames(job: FakeJob, at: StreamOffsets): AsyncGenerator<JobFrame> {
    for (;;) {
      const before = at.stdout + at.stderr;
      for (const stream of ['stdout', 'stderr'] as const) {
        const bytes = job.output[stream].subarray(at[stream]);
        if (bytes.length > 0) yield { type: 'output', stream, offset: at[stream], bytes };
        at[stream] += bytes.length;
      }
      if (at.stdout + at.stderr > before) continue;
      if (job.end) return yield { type: 'end', job: job.end };
      await once(job.changes, 'change', { signal: this.#over.signal });
    }
  }
}

function runningJob(id: string): GuestJob {
  return { id, status: 'running', exitCode: null, signal: null, stdoutBytes: 0, stderrBytes: 0, truncated: false };
}
