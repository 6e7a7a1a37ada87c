// A hypervisor without machines, for forcing faults: any step can be made to fail or hang. The end-to-end tests show the
// same behaviour on real ones.
import { EventEmitter, once } from 'node:events';
import { existsSync } from 'node:fs';
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { OutputStream } from '@sandbar/contract/exec.ts';
import type { Guest, GuestIdentity, GuestJob, JobFrame, StreamOffsets } from '../../src/guest/guest.ts';
import type { Hypervisor, Vm, VmExit, VmSpec } from '../../src/hypervisor/driver.ts';

export type FaultPoint = 'launch' | 'connectGuest' | 'rehearse' | 'setIdentity' | 'startJob' | 'listJobs';

export class FakeHypervisor implements Hypervisor {
  readonly isolation = 'emulated';
  /** VMs that run now, by machine. */
  readonly running = new Map<string, FakeVm>();
  readonly launched: VmSpec[] = [];
  /** Each entry fails the next pass through its step once. */
  readonly faults: FaultPoint[] = [];

  async launch(spec: VmSpec): Promise<Vm> {
    this.fault('launch');
    if (!existsSync(spec.runDir)) throw new Error('launched without a run directory');
    this.launched.push(spec);
    const vm = new FakeVm(this, spec.machineId);
    this.running.set(spec.machineId, vm);
    return vm;
  }

  async adopt(): Promise<Map<string, Vm>> {
    return new Map(this.running);
  }

  fault(point: FaultPoint): void {
    const at = this.faults.indexOf(point);
    if (at < 0) return;
    this.faults.splice(at, 1);
    throw new Error(`forced fault: ${point}`);
  }
}

export class FakeVm implements Vm {
  readonly pid = 0;
  readonly exited: Promise<VmExit>;
  readonly jobs = new Map<string, FakeJob>();
  identity: GuestIdentity | undefined;
  session: FakeGuest | undefined;
  /** Sessions that were opened so far. */
  sessions = 0;
  readonly #hypervisor: FakeHypervisor;
  readonly #machineId: string;
  #exit!: (exit: VmExit) => void;

  constructor(hypervisor: FakeHypervisor, machineId: string) {
    this.#hypervisor = hypervisor;
    this.#machineId = machineId;
    this.exited = new Promise((resolve) => {
      this.#exit = resolve;
    });
  }

  /** Like QEMU's socket, a second client is not answered while the first is connected. */
  async connectGuest(): Promise<Guest> {
    this.#hypervisor.fault('connectGuest');
    if (this.session?.isOpen) throw new Error('the port is taken by an earlier session');
    this.sessions++;
    this.session = new FakeGuest(this, this.#hypervisor);
    return this.session;
  }

  async readConsole(): Promise<string> {
    return 'fake console';
  }

  async end(): Promise<void> {
    this.#hypervisor.running.delete(this.#machineId);
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
