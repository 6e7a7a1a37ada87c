// A host agent in memory. It serves the host API on a Unix socket and can fail, hang or drop the connection at any
// call. It boots nothing. This is what tests use; fake-host/ has what it does, one file a subject.
import { randomUUID } from 'node:crypto';
import { rmSync } from 'node:fs';
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { HostInfo, JobReport } from '@sandbar/contract/host-api.ts';
import fastify, { type FastifyInstance } from 'fastify';
import { type Call, Calls, type Fault, type Operation } from './fake-host/calls.ts';
import { addCopyRoutes } from './fake-host/copies.ts';
import { addGuestRoutes, type GuestProgram } from './fake-host/guests.ts';
import { addJobRoutes, appendOutput, dropOutput, endJob, loseJobs } from './fake-host/jobs.ts';
import { addMachineRoutes, ensureMachine } from './fake-host/machines.ts';
import { addSnapshotRoutes } from './fake-host/snapshots.ts';
import { FakeState, machineOf } from './fake-host/state.ts';
import { addVolumeRoutes, rootVolume } from './fake-host/volumes.ts';
import { addHostRoutes } from './fake-host/whole-host.ts';

export const FAKE_HOST_ID = '019b0000-0000-7000-8000-000000000001';

export class FakeHost extends FakeState {
  /** What its guests answer, by the name of the call or stream. Guests refuse all other names as unknown. */
  readonly guestCalls: GuestProgram['calls'] = {};
  readonly guestStreams: GuestProgram['streams'] = {};
  /** All calls so far. `machineId` is the id of the volume or snapshot for their calls, except `takeSnapshot`. */
  readonly calls: readonly Call[];
  /** Every call with one of these ids fails, until `heal`. */
  readonly refused: Set<string>;
  readonly #calls = new Calls();
  readonly #socketPath: string;
  #plants = 0;
  #server: FastifyInstance | undefined;

  constructor(socketPath: string, info: Partial<HostInfo> = {}) {
    super({
      host_id: FAKE_HOST_ID,
      version: '0.0.0',
      boot_id: 'boot-1',
      isolation: 'emulated',
      network: 'user',
      subnet: '10.83.0.0/24',
      cpus: 2,
      memory_mb: 65_536,
      disk: { total_mb: 104_857_600, free_mb: 104_857_600, reserve_mb: 2048 },
      images: [
        {
          stack: 'base',
          description: 'For tests.',
          digest: `sha256:${'0'.repeat(64)}`,
          architecture: 'x86_64',
          min_rootfs_gb: 2,
          default: true,
          created_at: '2026-01-01T00:00:00.000Z',
        },
      ],
      ...info,
    });
    this.#socketPath = socketPath;
    this.calls = this.#calls.received;
    this.refused = this.#calls.refused;
  }

  /** Makes the next `times` calls of an operation go wrong. */
  fault(operation: Operation, fault: Fault, times = Number.POSITIVE_INFINITY): void {
    this.#calls.plan(operation, fault, times);
  }

  heal(): void {
    this.stuck.clear();
    this.#calls.heal();
  }

  /** Lets the calls that hang now continue. Faults still apply to later calls. */
  release(): void {
    this.#calls.release();
  }

  /** How many calls that change something were received so far. */
  get changeCount(): number {
    return this.#calls.changesMade.length;
  }

  /**
   * Repeats earlier calls that changed something, from index `from` up to, but not including, `to`, as if copies of
   * them arrived late. Errors are ignored.
   */
  repeatChanges(from: number, to?: number): void {
    for (const change of this.#calls.changesMade.slice(from, to)) {
      try {
        change();
      } catch (error) {
        if (!(error instanceof ServiceError)) throw error;
      }
    }
  }

  callsOf(operation: Operation): number {
    return this.calls.filter((call) => call.operation === operation).length;
  }

  /** Ends the virtual machine as if it had stopped or crashed by itself. */
  end(machineId: string, status: 'failed' | 'stopped', reason: string | null): void {
    const machine = machineOf(this, machineId);
    machine.report = { ...machine.report, status, reason };
    loseJobs(this, machine);
    this.emit({ type: 'machine', machine: machine.report });
  }

  endJob(machineId: string, jobId: string, end: Partial<JobReport> = {}): void {
    endJob(this, { id: machineId, job_id: jobId }, end);
  }

  /**
   * Drops the output of an ended job, as a real host does when the machine is over its limits. `forget`: the host drops
   * the job's record too, as when too many other jobs ended after it.
   */
  dropOutput(machineId: string, jobId: string, { forget = false } = {}): void {
    dropOutput(this, { id: machineId, job_id: jobId }, forget);
  }

  append(machineId: string, jobId: string, bytes: Buffer): void {
    appendOutput(this, { id: machineId, job_id: jobId }, bytes);
  }

  /** Puts a machine on the host that no control plane asked for. */
  plant(machineId: string): void {
    // Addresses from the end of the subnet, so that they do not collide with those of other machines.
    const private_ip = `10.83.0.${250 - (this.#plants++ % 100)}`;
    const spec = { vcpus: 1, memory_mb: 128, rootfs_size_gb: 2, stack: 'base', private_ip, hostname: 'x' };
    ensureMachine(this, machineId, { generation: 1, desired: 'running', spec });
  }

  /** Puts a kept root disk on the host. */
  plantVolume(volumeId: string, sizeGb: number): void {
    this.volumes.set(volumeId, rootVolume(volumeId, sizeGb));
    this.contents.set(volumeId, { content: randomUUID(), generation: 1 });
  }

  async listen(): Promise<void> {
    const server = fastify({
      forceCloseConnections: true,
      onProtoPoisoning: 'ignore',
      onConstructorPoisoning: 'ignore',
    });
    this.#server = server;
    this.isListening = true;
    server.setErrorHandler((error, _request, reply) => {
      const told = error instanceof ServiceError ? error : new ServiceError('internal_error', String(error));
      reply.code(told.status).send({ detail: told.message, code: told.code });
    });
    const subjects = [addHostRoutes, addMachineRoutes, addVolumeRoutes, addSnapshotRoutes, addCopyRoutes, addJobRoutes];
    for (const addRoutes of subjects) addRoutes(server, this, this.#calls.handle);
    addGuestRoutes(server, this, { calls: this.guestCalls, streams: this.guestStreams }, this.#calls);
    rmSync(this.#socketPath, { force: true });
    await server.listen({ path: this.#socketPath });
  }

  /** Stops the agent. The machines keep their state. */
  async away(): Promise<void> {
    this.#calls.release();
    this.events.emit('close');
    for (const { jobs } of this.machines.values()) for (const jobId of jobs.keys()) this.jobChanges.emit(jobId);
    await this.#server?.close();
    this.#server = undefined;
    this.isListening = false;
  }
}
