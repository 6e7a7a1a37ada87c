// A session with the guest of a fake VM. A test decides what its jobs print and when they end.
import { EventEmitter, once } from 'node:events';
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { OutputStream } from '@sandbar/contract/exec.ts';
import type {
  Guest,
  GuestClaim,
  GuestIdentity,
  GuestJob,
  GuestLease,
  JobFrame,
  JobSpec,
  StreamOffsets,
  VolumeMount,
  WarmUpProgram,
} from '../../src/guest/guest.ts';
import type { GuestStream } from '../../src/guest/guest-stream.ts';
import type { FakeHypervisor, FaultPoint } from './fake-hypervisor.ts';
import type { FakeVm } from './fake-vm.ts';

/** A job whose output and end the test controls. */
export class FakeJob {
  /** What the guest was asked to run. */
  readonly spec: JobSpec;
  readonly changes = new EventEmitter<{ change: [] }>().setMaxListeners(0);
  readonly output: Record<OutputStream, Buffer> = { stdout: Buffer.alloc(0), stderr: Buffer.alloc(0) };
  end: GuestJob | undefined;
  acknowledged: StreamOffsets = { stdout: 0, stderr: 0 };

  constructor(spec: JobSpec) {
    this.spec = spec;
  }

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
      stdinBytes: null,
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

  checkBare(): Promise<void> {
    return this.#whileOpen(
      this.#vm.step('checkBare', () => {
        if (!this.#vm.isBare) throw new ServiceError('conflict', 'the disk is mounted');
      }),
    );
  }

  warmUp(program: WarmUpProgram): Promise<void> {
    return this.#whileOpen(
      this.#vm.step('warmUp', () => {
        this.#vm.checkAddress('warmUp');
        if (program === 'shell' && this.#vm.hasLayers)
          this.#hypervisor.violations.push("a program of a user's disk ran before the identity");
      }),
    );
  }

  warmUpJob(program: WarmUpProgram): Promise<void> {
    return this.warmUp(program);
  }

  lease(lease: GuestLease): Promise<boolean> {
    return this.#whileOpen(
      this.#vm.step('lease', () => {
        this.#over.signal.throwIfAborted();
        if (this.#vm.identity) throw new ServiceError('conflict', 'it has an identity');
        if (this.#hypervisor.addressOf && !lease.address.startsWith(`${this.#hypervisor.addressOf(this.#vm.vmId)}/`))
          this.#hypervisor.violations.push('a lease of another address than the network has');
        this.#vm.lease = lease;
        return this.#hypervisor.canBeClaimed;
      }),
    );
  }

  /** A fault at the point `setIdentity` also happens here, because both give the guest its identity. */
  claim(claim: GuestClaim): Promise<void> {
    return this.#whileOpen(
      this.#vm.step('setIdentity', () => {
        this.#over.signal.throwIfAborted();
        this.#vm.checkAddress('claim');
        const { lease, identity } = this.#vm;
        if (!lease || !this.#hypervisor.canBeClaimed) throw new ServiceError('conflict', 'no complete lease');
        if (identity && identity.machineId !== claim.machineId)
          throw new ServiceError('conflict', 'it has an identity');
        this.#vm.identity = { ...lease, ...claim };
      }),
    );
  }

  setIdentity(identity: GuestIdentity): Promise<void> {
    return this.#whileOpen(
      this.#vm.step('setIdentity', () => {
        this.#over.signal.throwIfAborted();
        this.#vm.checkAddress('setIdentity');
        if (this.#vm.isResumed !== (identity.wasHeld === true))
          this.#hypervisor.violations.push(
            'a guest was not asked whether its processes were held, or was without reason',
          );
        if (identity.wasHeld && !this.#vm.areProcessesHeld) throw new ServiceError('conflict', 'not frozen');
        if (identity.wasHeld || (this.#vm.identity && this.#vm.identity.machineId !== identity.machineId)) {
          this.#vm.jobs.clear();
          this.#vm.mounts.clear();
          this.#vm.areProcessesHeld = false;
        }
        this.#vm.identity = identity;
      }),
    );
  }

  mountVolume(mount: VolumeMount): Promise<void> {
    return this.#inGuest('mountVolume', () => {
      const { mounts } = this.#vm;
      const own = mounts.get(mount.volumeId);
      if (own && (own.path !== mount.path || own.slot !== mount.slot))
        throw new ServiceError('conflict', `the volume is mounted at ${own.path}`);
      if (this.#vm.plugged.get(mount.slot)?.serial !== mount.volumeId)
        throw new ServiceError('conflict', 'the disk does not show up');
      const isTaken = [...mounts.values()].some(
        ({ volumeId, path, slot }) => volumeId !== mount.volumeId && (path === mount.path || slot === mount.slot),
      );
      if (isTaken) throw new ServiceError('conflict', 'another volume is there');
      mounts.set(mount.volumeId, mount);
    });
  }

  unmountVolume(volumeId: string): Promise<void> {
    return this.#inGuest('unmountVolume', () => {
      const holder = this.#vm.holders.get(volumeId);
      if (holder !== undefined) throw new ServiceError('conflict', `the volume is busy: ${holder}`);
      this.#vm.mounts.delete(volumeId);
    });
  }

  /** Freezes the guest's file systems until the test thaws them. Unlike the real guest, it has no time limit. */
  freeze(): Promise<void> {
    return this.#inGuest('freeze', () => {
      if (this.#vm.isFrozen) throw new ServiceError('conflict', 'the root file system is frozen already');
      this.#vm.isFrozen = true;
    });
  }

  thaw(): Promise<void> {
    return this.#inGuest('thaw', () => {
      if (!this.#vm.isFrozen) throw new ServiceError('conflict', 'the root file system is not frozen');
      this.#vm.isFrozen = false;
    });
  }

  /** Holds the guest's processes until the test releases them. Unlike the real guest, it has no time limit. */
  holdProcesses(): Promise<void> {
    return this.#inGuest('holdProcesses', () => {
      if (this.#vm.areProcessesHeld) throw new ServiceError('conflict', 'the processes are held already');
      this.#vm.areProcessesHeld = true;
    });
  }

  releaseProcesses(): Promise<void> {
    return this.#inGuest('releaseProcesses', () => {
      if (!this.#vm.areProcessesHeld) throw new ServiceError('conflict', 'the processes are not held');
      this.#vm.areProcessesHeld = false;
    });
  }

  /**
   * Runs a step in the guest. Without an open session the step has no effect. If the session ends first, the answer is
   * lost.
   */
  #inGuest(point: FaultPoint, effect: () => void): Promise<void> {
    return this.#whileOpen(
      this.#vm.step(point, () => {
        this.#over.signal.throwIfAborted();
        effect();
      }),
    );
  }

  #whileOpen<T>(work: Promise<T>): Promise<T> {
    work.catch(() => {});
    return Promise.race([work, this.closed.then(() => Promise.reject(new Error('the session is over')))]);
  }

  async startJob(jobId: string, spec: JobSpec): Promise<AsyncIterable<JobFrame>> {
    this.#over.signal.throwIfAborted();
    if (!this.#vm.jobs.has(jobId)) this.#vm.jobs.set(jobId, new FakeJob(spec));
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

  async call(name: string, params: string): Promise<string> {
    this.#over.signal.throwIfAborted();
    return this.#vm.onCall(name, params);
  }

  async openStream(name: string, params: string): Promise<GuestStream> {
    this.#over.signal.throwIfAborted();
    const stream = await this.#vm.onStream(name, params);
    this.#over.signal.addEventListener('abort', () => stream.duplex.destroy(new Error('the session is over')));
    return stream;
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
  const bytes = { stdinBytes: null, stdoutBytes: 0, stderrBytes: 0 };
  return { id, status: 'running', exitCode: null, signal: null, ...bytes, truncated: false };
}
