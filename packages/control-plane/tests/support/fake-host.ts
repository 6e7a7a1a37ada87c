// A host agent in memory. It serves the host API on a Unix socket and can fail, hang or drop the connection at any
// call. It boots nothing, and its jobs run only a few words (`true`, `sleep`, `print TEXT`, `bytes N`, `exit N`).
import { randomUUID } from 'node:crypto';
import { EventEmitter, once } from 'node:events';
import { rmSync } from 'node:fs';
import type { Duplex, Readable } from 'node:stream';
import { text } from 'node:stream/consumers';
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { GuestCallName, GuestStreamName } from '@sandbar/contract/guest-calls.ts';
import {
  type EnsureMachine,
  HOST_PATHS,
  type HostEvent,
  type HostFinding,
  type HostInfo,
  type HostSnapshot,
  type HostVolume,
  type JobReport,
  type MachineReport,
  OUTPUT_HEADERS,
  type ReceivedMachine,
  type StartJob,
  type StartPath,
  type TakeSnapshot,
} from '@sandbar/contract/host-api.ts';
import fastify, { type FastifyInstance, type FastifyReply } from 'fastify';
import { addGuestRoutes } from '../../../host-agent/src/http/guest-routes.ts';
import { addPortRoute } from '../../../host-agent/src/http/port-route.ts';

export type Operation =
  | 'info'
  | 'list'
  | 'get'
  | 'ensure'
  | 'delete'
  | 'startJob'
  | 'listJobs'
  | 'keptOutput'
  | 'getJob'
  | 'cancel'
  | 'output'
  | 'listVolumes'
  | 'ensureVolume'
  | 'deleteVolume'
  | 'sendCopy'
  | 'receiveCopy'
  | 'listSnapshots'
  | 'takeSnapshot'
  | 'deleteSnapshot'
  | 'callGuest'
  | 'openStream'
  | 'audit'
  | 'fixAudit';
/**
 * What goes wrong with a call. `fail`: the host does nothing and answers with an error. `drop`: it does nothing and
 * closes the connection. `hang`: it does nothing and does not answer until released. With `After`, the host does the
 * work first. `hangThenFail`: it answers with an error once released. `answerLate`: it does the work and prepares the
 * answer now, and sends the answer once released.
 */
export type Fault =
  | 'fail'
  | 'failAfter'
  | 'drop'
  | 'dropAfter'
  | 'hang'
  | 'hangAfter'
  | 'hangThenFail'
  | 'answerLate'
  | ServiceError;

const CHANGING: readonly Operation[] = [
  'ensure',
  'delete',
  'ensureVolume',
  'deleteVolume',
  'receiveCopy',
  'takeSnapshot',
  'deleteSnapshot',
];

/** `wanted` is the request that started the job. */
type Job = { report: JobReport; stdout: Buffer; wanted: StartJob };
type FakeMachine = {
  report: MachineReport;
  wanted: EnsureMachine;
  jobs: Map<string, Job>;
  /** The root volume that became the machine's disk, with its properties from before. */
  taken: HostVolume | undefined;
  /** The snapshots that the machine's disk was restored to, with the generation of each restore. */
  restores: { snapshotId: string; generation: number }[];
  /** The generation of the machine when it last booted. */
  bootGeneration: number;
  /** What its root disk contains; stays the same when the machine moves. */
  disk: string;
};

type SentVolume = { volume: HostVolume; content: string };
type SentMachine = {
  wanted: EnsureMachine;
  disk: string;
  output: [string, Omit<Job, 'stdout'> & { stdout: string }][];
  snapshots: HostSnapshot[];
};

/** What the guests of this host answer to a call. `params` is the JSON of the request. Throws a refusal. */
export type FakeCall = (machineId: string, params: never) => unknown;
/** A stream that a fake guest has opened. `duplex` is the guest's end of it. */
export type FakeStream = { head: unknown; duplex: Duplex; result: Promise<unknown> };
export type FakeOpen = (machineId: string, params: never) => FakeStream | Promise<FakeStream>;

/**
 * The same interval as a real host's. Without heartbeats the control plane would reopen the event stream and treat the
 * host as disconnected.
 */
const HEARTBEAT_MS = 5_000;
export const FAKE_HOST_ID = '019b0000-0000-7000-8000-000000000001';

export class FakeHost {
  readonly machines = new Map<string, FakeMachine>();
  /** Disks that belong to no machine: data volumes and kept root disks. */
  readonly volumes = new Map<string, HostVolume>();
  /** What is in each volume, and the generation of this copy. A volume that moves keeps its content. */
  readonly contents = new Map<string, { content: string; generation: number }>();
  readonly snapshots = new Map<string, HostSnapshot>();
  /** What its guests answer, by the name of the call or stream. Guests refuse all other names as unknown. */
  readonly guestCalls: Partial<Record<GuestCallName, FakeCall>> = {};
  readonly guestStreams: Partial<Record<GuestStreamName, FakeOpen | undefined>> = {};
  /** What the host's own audit reports. */
  findings: HostFinding[] = [];
  /** All calls so far. `machineId` is the id of the volume or snapshot for their calls, except `takeSnapshot`. */
  readonly calls: { operation: Operation; machineId: string }[] = [];
  /** The work of each call that changes something, so that a test can repeat it. */
  readonly #changesMade: (() => unknown)[] = [];
  readonly info: HostInfo;
  /** How this host says that it started a machine; undefined: it says nothing, like an older agent. */
  startPath: StartPath | undefined;
  /** While true, no root disk and no machine of another host can be used here. */
  lacksImages = false;
  /** While true, it sends and takes in machines without their snapshots, like an older agent. */
  leavesSnapshots = false;
  /** While true, no events are sent. */
  isMute = false;
  /** Volumes that cannot be attached to or detached from a running machine, until `heal`. */
  readonly stuck = new Set<string>();
  /** Every call with one of these ids fails, until `heal`. */
  readonly refused = new Set<string>();
  readonly #faults = new Map<Operation, { fault: Fault; times: number }>();
  readonly #events = new EventEmitter().setMaxListeners(0);
  /** Emits the id of a job whose output or end has changed. */
  readonly #changes = new EventEmitter().setMaxListeners(0);
  /**
   * The generation at which each machine was deleted. Like a real host, this host refuses a create that arrives after
   * the delete.
   */
  readonly #destroyed = new Map<string, number>();
  /**
   * The latest deleted generation of each volume. Like a real host, this host refuses to create one of them again, and
   * to take in an earlier copy.
   */
  readonly #removedVolumes = new Map<string, number>();
  readonly #socketPath: string;
  /**
   * How many addresses were leased so far. The next lease continues from there, so that a freed address is leased again
   * as late as possible.
   */
  #leases = 0;
  #plants = 0;
  #releases: (() => void)[] = [];
  #server: FastifyInstance | undefined;

  constructor(socketPath: string, info: Partial<HostInfo> = {}) {
    this.#socketPath = socketPath;
    this.info = {
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
    };
  }

  /** Makes the next `times` calls of an operation go wrong. */
  fault(operation: Operation, fault: Fault, times = Number.POSITIVE_INFINITY): void {
    this.#faults.set(operation, { fault, times });
  }

  heal(): void {
    this.#faults.clear();
    this.refused.clear();
    this.stuck.clear();
    this.release();
  }

  /** Lets the calls that hang now continue. Faults still apply to later calls. */
  release(): void {
    for (const release of this.#releases.splice(0)) release();
  }

  /** How many calls that change something were received so far. */
  get changeCount(): number {
    return this.#changesMade.length;
  }

  /**
   * Repeats earlier calls that changed something, from index `from` up to, but not including, `to`, as if copies of
   * them arrived late. Errors are ignored.
   */
  repeatChanges(from: number, to?: number): void {
    for (const change of this.#changesMade.slice(from, to)) {
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
    const machine = this.#machine(machineId);
    machine.report = { ...machine.report, status, reason };
    this.#loseJobs(machine);
    this.#emit({ type: 'machine', machine: machine.report });
  }

  endJob(machineId: string, jobId: string, end: Partial<JobReport> = {}): void {
    const job = this.#job(machineId, jobId);
    if (job.report.status !== 'running') return;
    const finished_at = new Date().toISOString();
    job.report = { ...job.report, status: 'exited', exit_code: 0, finished_at, ...end };
    this.#emit({ type: 'job', job: job.report });
    this.#changes.emit(jobId);
  }

  /**
   * Drops the output of an ended job, as a real host does when the machine is over its limits. `forget`: the host drops
   * the job's record too, as when too many other jobs ended after it.
   */
  dropOutput(machineId: string, jobId: string, { forget = false } = {}): void {
    const machine = this.#machine(machineId);
    const job = this.#job(machineId, jobId);
    if (forget) machine.jobs.delete(jobId);
    else job.report = { ...job.report, output_expired: true };
    machine.report = { ...machine.report, output_revision: `${jobId} was dropped` };
    this.#changes.emit(jobId);
  }

  append(machineId: string, jobId: string, bytes: Buffer): void {
    const job = this.#job(machineId, jobId);
    job.stdout = Buffer.concat([job.stdout, bytes]);
    job.report = { ...job.report, stdout_bytes: job.stdout.length };
    this.#changes.emit(jobId);
  }

  /** Puts a machine on the host that no control plane asked for. */
  plant(machineId: string): void {
    // Addresses from the end of the subnet, so that they do not collide with those of other machines.
    const private_ip = `10.83.0.${250 - (this.#plants++ % 100)}`;
    const spec = { vcpus: 1, memory_mb: 128, rootfs_size_gb: 2, stack: 'base', private_ip, hostname: 'x' };
    this.#apply(machineId, { generation: 1, desired: 'running', spec });
  }

  /** Puts a kept root disk on the host. */
  plantVolume(volumeId: string, sizeGb: number): void {
    this.volumes.set(volumeId, { volume_id: volumeId, size_gb: sizeGb, kind: 'root' });
    this.contents.set(volumeId, { content: randomUUID(), generation: 1 });
  }

  async listen(): Promise<void> {
    const server = fastify({
      forceCloseConnections: true,
      onProtoPoisoning: 'ignore',
      onConstructorPoisoning: 'ignore',
    });
    this.#server = server;
    server.setErrorHandler((error, _request, reply) => {
      const told = error instanceof ServiceError ? error : new ServiceError('internal_error', String(error));
      reply.code(told.status).send({ detail: told.message, code: told.code });
    });
    this.#addRoutes(server);
    const guests = { get: (id: string) => this.#guestOf(id) };
    addGuestRoutes(server, guests);
    addPortRoute(server, guests, (error) =>
      error instanceof ServiceError ? error : new ServiceError('internal_error', String(error)),
    );
    rmSync(this.#socketPath, { force: true });
    await server.listen({ path: this.#socketPath });
  }

  /** Stops the agent. The machines keep their state. */
  async away(): Promise<void> {
    for (const release of this.#releases.splice(0)) release();
    this.#events.emit('close');
    for (const { jobs } of this.machines.values()) for (const jobId of jobs.keys()) this.#changes.emit(jobId);
    await this.#server?.close();
    this.#server = undefined;
  }

  #addRoutes(server: FastifyInstance): void {
    type Machine = { Params: { id: string } };
    type JobRoute = { Params: { id: string; job_id: string }; Querystring: Record<string, string> };
    const handle = async (operation: Operation, machineId: string, reply: FastifyReply, act: () => unknown) => {
      this.calls.push({ operation, machineId });
      if (CHANGING.includes(operation)) this.#changesMade.push(act);
      const planned = this.refused.has(machineId) ? 'fail' : this.#takeFault(operation);
      if (planned === 'drop') return drop(reply);
      if (planned === 'hang' || planned === 'hangAfter' || planned === 'hangThenFail') {
        if (planned === 'hangAfter') act();
        await new Promise<void>((resolve) => this.#releases.push(resolve));
        if (planned === 'hangAfter') return drop(reply);
      }
      if (planned === 'fail' || planned === 'hangThenFail')
        throw new ServiceError('internal_error', 'The fake host was told to fail.');
      if (planned instanceof ServiceError) throw planned;
      const result = await act();
      if (planned === 'answerLate') await new Promise<void>((resolve) => this.#releases.push(resolve));
      if (planned === 'dropAfter') return drop(reply);
      if (planned === 'failAfter') throw new ServiceError('internal_error', 'The fake host failed half-way.');
      return reply.send(result);
    };
    server.get(HOST_PATHS.host, (_request, reply) => handle('info', '', reply, () => this.info));
    server.get(HOST_PATHS.machines, (_request, reply) =>
      handle('list', '', reply, () => ({ boot_id: this.info.boot_id, machines: this.#reports() })),
    );
    server.get<Machine>(HOST_PATHS.machine, ({ params }, reply) =>
      handle('get', params.id, reply, () => this.#machine(params.id).report),
    );
    server.put<Machine>(HOST_PATHS.machine, ({ params, body }, reply) =>
      handle('ensure', params.id, reply, () => this.#apply(params.id, body as EnsureMachine)),
    );
    type DeleteQuery = { Querystring: { generation: string; keep_volume_id?: string; with_snapshots?: string } };
    server.delete<Machine & DeleteQuery>(HOST_PATHS.machine, ({ params, query }, reply) =>
      handle('delete', params.id, reply, () => {
        const machine = this.machines.get(params.id);
        if (machine && Number(query.generation) < machine.report.generation)
          throw new ServiceError('conflict', 'older generation');
        this.#destroyed.set(params.id, Number(query.generation));
        if (!machine && query.keep_volume_id && !this.volumes.has(query.keep_volume_id))
          throw new ServiceError('not_found', 'no disk');
        if (machine && query.keep_volume_id) this.#keepDisk(machine, query.keep_volume_id);
        this.machines.delete(params.id);
        if (machine) this.#loseJobs(machine);
        if (query.with_snapshots === 'true')
          for (const one of this.#snapshotsOf(params.id)) this.snapshots.delete(one.snapshot_id);
        return undefined;
      }),
    );
    server.get(HOST_PATHS.volumes, (_request, reply) =>
      handle('listVolumes', '', reply, () => ({ volumes: [...this.volumes.values()] })),
    );
    type VolumeBody = { Body: { size_gb: number } };
    server.put<Machine & VolumeBody>(HOST_PATHS.volume, ({ params, body }, reply) =>
      handle('ensureVolume', params.id, reply, () => {
        if (this.#removedVolumes.has(params.id)) throw new ServiceError('conflict', 'The volume was deleted.');
        const known = this.volumes.get(params.id);
        const volume = known ?? { volume_id: params.id, size_gb: body.size_gb, kind: 'data' as const };
        this.volumes.set(params.id, volume);
        if (!known) this.contents.set(params.id, { content: randomUUID(), generation: 1 });
        return volume;
      }),
    );
    type GenerationQuery = { Querystring: { generation?: string } };
    server.delete<Machine & GenerationQuery>(HOST_PATHS.volume, ({ params, query }, reply) =>
      handle('deleteVolume', params.id, reply, () => {
        const generation = Number(query.generation ?? Number.MAX_SAFE_INTEGER);
        this.#removedVolumes.set(params.id, Math.max(generation, this.#removedVolumes.get(params.id) ?? 0));
        if ((this.contents.get(params.id)?.generation ?? 1) > generation) return undefined;
        if (this.#holderOf(params.id)) throw new ServiceError('conflict', 'A machine has this volume.');
        this.volumes.delete(params.id);
        this.contents.delete(params.id);
        return undefined;
      }),
    );
    const copies = [
      [HOST_PATHS.volumeCopy, this.#sendVolume, this.#receiveVolume],
      [HOST_PATHS.machineCopy, this.#sendMachine, this.#receiveMachine],
    ] as const;
    for (const [path, send, receive] of copies) {
      server.get<Machine>(path, ({ params }, reply) =>
        handle('sendCopy', params.id, reply, () => {
          reply.type('application/octet-stream');
          return Buffer.from(JSON.stringify(send(params.id)));
        }),
      );
      server.put<Machine & GenerationQuery>(path, async ({ params, query, body }, reply) => {
        const sent = JSON.parse(await text(body as Readable));
        return handle('receiveCopy', params.id, reply, () => receive(params.id, Number(query.generation), sent));
      });
    }
    server.get(HOST_PATHS.snapshots, (_request, reply) =>
      handle('listSnapshots', '', reply, () => ({ snapshots: [...this.snapshots.values()] })),
    );
    type SnapshotRoute = { Params: { id: string; snapshot_id: string }; Body: TakeSnapshot };
    server.put<SnapshotRoute>(HOST_PATHS.machineSnapshot, ({ params, body }, reply) =>
      handle('takeSnapshot', params.id, reply, () => this.#takeSnapshot(params.id, params.snapshot_id, body)),
    );
    server.delete<Machine>(HOST_PATHS.snapshot, ({ params }, reply) =>
      handle('deleteSnapshot', params.id, reply, () => {
        this.snapshots.delete(params.id);
        return undefined;
      }),
    );
    server.put<JobRoute>(HOST_PATHS.job, ({ params, body }, reply) =>
      handle('startJob', params.id, reply, () => this.#startJob(params.id, params.job_id, body as StartJob)),
    );
    server.get<Machine>(HOST_PATHS.jobs, ({ params }, reply) =>
      handle('listJobs', params.id, reply, () => {
        const reports = [...this.#machine(params.id).jobs.values()].map((job) => job.report);
        return { jobs: reports.filter((report) => report.status === 'running') };
      }),
    );
    server.get<Machine>(HOST_PATHS.keptOutput, ({ params }, reply) =>
      handle('keptOutput', params.id, reply, () => {
        const { report, jobs } = this.#machine(params.id);
        const kept = [...jobs.values()].filter((job) => !job.report.output_expired);
        return { output_revision: report.output_revision, job_ids: kept.map((job) => job.report.job_id) };
      }),
    );
    server.get<JobRoute>(HOST_PATHS.job, ({ params, query }, reply) =>
      handle('getJob', params.id, reply, async () => {
        const ended = () => this.#job(params.id, params.job_id).report.status !== 'running';
        await this.#waitUntil(params.job_id, ended, query.wait_ms);
        return this.#job(params.id, params.job_id).report;
      }),
    );
    server.post<JobRoute>(HOST_PATHS.jobCancel, ({ params }, reply) =>
      handle('cancel', params.id, reply, () => {
        this.endJob(params.id, params.job_id, { status: 'canceled', exit_code: null, signal: 'SIGTERM' });
        return this.#job(params.id, params.job_id).report;
      }),
    );
    server.get<JobRoute>(HOST_PATHS.jobOutput, ({ params, query }, reply) =>
      handle('output', params.id, reply, async () => {
        const offset = Number(query.offset);
        const size = () => (query.stream === 'stdout' ? this.#job(params.id, params.job_id).stdout.length : 0);
        const ended = () => this.#job(params.id, params.job_id).report.status !== 'running';
        await this.#waitUntil(params.job_id, () => ended() || size() > offset, query.wait_ms);
        if (this.#job(params.id, params.job_id).report.output_expired)
          throw new ServiceError('output_expired', 'the output was dropped');
        const all = query.stream === 'stdout' ? this.#job(params.id, params.job_id).stdout : Buffer.alloc(0);
        const page = all.subarray(offset, offset + Number(query.limit));
        const next = offset + page.length;
        reply.header(OUTPUT_HEADERS.nextOffset, String(next));
        reply.header(OUTPUT_HEADERS.totalBytes, String(all.length));
        reply.header(OUTPUT_HEADERS.eof, String(ended() && next >= all.length));
        reply.type('application/octet-stream');
        return page;
      }),
    );
    const audit = () => ({
      findings: this.findings,
      machines: this.#reports(),
      volumes: [...this.volumes.values()],
      snapshots: [...this.snapshots.values()],
    });
    server.get(HOST_PATHS.audit, (_request, reply) => handle('audit', '', reply, audit));
    server.post(HOST_PATHS.auditFix, (_request, reply) =>
      handle('fixAudit', '', reply, () => {
        const fixed = this.findings.filter((finding) => finding.fixable);
        this.findings = this.findings.filter((finding) => !finding.fixable);
        return { ...audit(), fixed };
      }),
    );
    server.get(HOST_PATHS.events, async (_request, reply) => {
      reply.hijack();
      const write = (event: HostEvent) => reply.raw.write(`${JSON.stringify(event)}\n`);
      reply.raw.writeHead(200, { 'content-type': 'application/x-ndjson' });
      for (const machine of this.#reports()) write({ type: 'machine', machine });
      write({ type: 'synced' });
      this.#events.on('event', write);
      const heartbeat = setInterval(() => write({ type: 'heartbeat' }), HEARTBEAT_MS).unref();
      await Promise.race([once(this.#events, 'close'), once(reply.raw, 'close')]);
      clearInterval(heartbeat);
      this.#events.off('event', write);
      reply.raw.destroy();
    });
  }

  #sendVolume = (id: string) => {
    const [volume, held] = [this.volumes.get(id), this.contents.get(id)];
    if (!volume || !held) throw new ServiceError('not_found', 'The host has no such volume.');
    return { volume, content: held.content };
  };

  #receiveVolume = (id: string, generation: number, { volume, content }: SentVolume): HostVolume => {
    const present = this.contents.get(id)?.generation ?? 0;
    if ((this.#removedVolumes.get(id) ?? 0) >= generation || present > generation)
      throw new ServiceError('conflict', 'A later generation of the volume was here.');
    if (volume.kind === 'root' && this.lacksImages) throw new ServiceError('conflict', 'The host lacks the image.');
    if (present < generation) {
      this.volumes.set(id, volume);
      this.contents.set(id, { content, generation });
    }
    return volume;
  };

  #sendMachine = (id: string) => {
    const { report, wanted, disk, jobs } = this.#machine(id);
    if (report.status !== 'stopped') throw new ServiceError('conflict', 'The machine is not stopped.');
    const output = [...jobs].map(([jobId, job]) => [jobId, { ...job, stdout: job.stdout.toString('base64') }]);
    return { wanted, disk, output, snapshots: this.leavesSnapshots ? [] : this.#snapshotsOf(id) };
  };

  #snapshotsOf = (machineId: string): HostSnapshot[] =>
    [...this.snapshots.values()].filter((snapshot) => snapshot.machine_id === machineId);

  #receiveMachine = (id: string, generation: number, sent: SentMachine): MachineReport | ReceivedMachine => {
    const report = this.#takeIn(id, generation, sent);
    if (this.leavesSnapshots) return report;
    return { ...report, snapshot_ids: this.#snapshotsOf(id).map((snapshot) => snapshot.snapshot_id) };
  };

  #takeIn(id: string, generation: number, { wanted, disk, output, snapshots }: SentMachine): MachineReport {
    if ((this.#destroyed.get(id) ?? 0) >= generation) throw new ServiceError('conflict', 'it was destroyed');
    const known = this.machines.get(id)?.report;
    if (known?.generation === generation) return known;
    if (known) throw new ServiceError('conflict', 'The machine is here as another generation.');
    if (this.lacksImages) throw new ServiceError('conflict', 'The host lacks the image.');
    const report: MachineReport = {
      ...{ machine_id: id, generation, status: 'stopped', reason: null, isolation: this.info.isolation },
      private_ip: this.#leaseAddress(new Set([...this.machines.values()].map((machine) => machine.report.private_ip))),
      output_revision: null,
    };
    const jobs = new Map(output.map(([jobId, job]) => [jobId, { ...job, stdout: Buffer.from(job.stdout, 'base64') }]));
    for (const one of snapshots) this.snapshots.set(one.snapshot_id, one);
    this.machines.set(id, { report, wanted, disk, jobs, taken: undefined, restores: [], bootGeneration: 0 });
    return report;
  }

  /** The guest of a running machine, which answers as the test has programmed it. */
  #guestOf(machineId: string) {
    const { report } = this.#machine(machineId);
    const check = (operation: Operation, known: unknown) => {
      this.calls.push({ operation, machineId });
      const planned = this.#takeFault(operation);
      if (planned instanceof ServiceError) throw planned;
      if (report.status !== 'running')
        throw new ServiceError('conflict', `the machine is ${report.status}, not running`);
      if (!known) throw new ServiceError('not_found', 'no such request');
    };
    return {
      callGuest: async (name: GuestCallName, params: string) => {
        const call = this.guestCalls[name];
        check('callGuest', call);
        return JSON.stringify(await call?.(machineId, JSON.parse(params) as never));
      },
      openStream: async (name: GuestStreamName, params: string) => {
        const open = this.guestStreams[name];
        check('openStream', open);
        if (!open) throw new Error('unreachable');
        const { head, duplex, result } = await open(machineId, JSON.parse(params) as never);
        return { head: JSON.stringify(head), duplex, result: result.then((value) => JSON.stringify(value)) };
      },
    };
  }

  #apply(id: string, wanted: EnsureMachine): MachineReport {
    if ((this.#destroyed.get(id) ?? 0) >= wanted.generation) throw new ServiceError('conflict', 'it was destroyed');
    const known = this.machines.get(id);
    if (known && wanted.generation < known.report.generation) throw new ServiceError('conflict', 'older generation');
    for (const { volume_id } of wanted.volumes ?? []) this.#checkVolume(volume_id, id, wanted.desired);
    if (wanted.desired === 'running') this.#checkStuck(known?.wanted, wanted);
    const report: MachineReport = {
      machine_id: id,
      generation: wanted.generation,
      status: wanted.desired,
      reason: null,
      isolation: this.info.isolation,
      private_ip: this.#addressOf(id, wanted),
      output_revision: known?.report.output_revision ?? null,
    };
    const wasRunning = known?.report.status === 'running';
    const machine = known ? { ...known, report, wanted } : this.#makeMachine(report, wanted);
    if (wanted.desired === 'running' && !wasRunning) machine.bootGeneration = wanted.generation;
    this.#restore(machine, wanted);
    this.machines.set(id, machine);
    if (wanted.desired === 'stopped') this.#loseJobs(machine);
    const { startPath } = this;
    const hasStarted = wanted.desired === 'running' && !wasRunning && startPath !== undefined;
    return hasStarted ? { ...report, start_path: startPath } : report;
  }

  /** Returns the address that the machine already has, else the one in the request, else a free one. */
  #addressOf(id: string, { desired, spec }: EnsureMachine): string {
    const own = this.machines.get(id)?.report.private_ip;
    const others = new Set(
      [...this.machines].filter(([other]) => other !== id).map(([, { report }]) => report.private_ip),
    );
    const named = spec.private_ip;
    if (named !== undefined && desired === 'running' && others.has(named))
      throw new ServiceError('conflict', `another machine of the host has the address ${named}`);
    if (own && named !== undefined && desired === 'running' && named !== own)
      throw new ServiceError('conflict', `the machine has the address ${own} on its host, not ${named}`);
    return own ?? named ?? this.#leaseAddress(others);
  }

  /** Leases a free address, but never the network, the gateway, .2, .3 or the broadcast address. */
  #leaseAddress(taken: ReadonlySet<string | null>): string {
    const [base = '', bits] = this.info.subnet.split('/');
    const [a = 0, b = 0, c = 0, d = 0] = base.split('.').map(Number);
    const count = 2 ** (32 - Number(bits)) - 5;
    for (let tries = 0; tries < count; tries++) {
      const value = c * 256 + d + 4 + (this.#leases++ % count);
      const address = `${a}.${b + Math.floor(value / 65_536)}.${Math.floor(value / 256) % 256}.${value % 256}`;
      if (!taken.has(address)) return address;
    }
    throw new ServiceError(
      'fleet_capacity',
      `the host has no free address: its subnet ${this.info.subnet} is limited to ${count} machines, stopped ones included`,
    );
  }

  #makeMachine(report: MachineReport, wanted: EnsureMachine): FakeMachine {
    const { snapshot_id, root_volume_id } = wanted.spec;
    if (snapshot_id !== undefined) this.#snapshot(snapshot_id);
    const taken = root_volume_id === undefined ? undefined : this.volumes.get(root_volume_id);
    if (root_volume_id !== undefined && taken?.kind !== 'root')
      throw new ServiceError('not_found', `The disk of volume ${root_volume_id} is not there.`);
    const disk = this.contents.get(taken?.volume_id ?? '')?.content ?? randomUUID();
    if (taken) {
      this.volumes.delete(taken.volume_id);
      this.contents.delete(taken.volume_id);
    }
    return { report, wanted, jobs: new Map(), taken, restores: [], bootGeneration: 0, disk };
  }

  /** Restores a snapshot, at most once for each generation. */
  #restore(machine: FakeMachine, { generation, restore_snapshot_id: snapshotId }: EnsureMachine): void {
    if (snapshotId === undefined || machine.restores.at(-1)?.generation === generation) return;
    this.#snapshot(snapshotId);
    machine.restores.push({ snapshotId, generation });
    machine.bootGeneration = generation;
    this.#loseJobs(machine);
  }

  /** Keeps the machine's disk as a volume. If the machine was made from this volume, the volume returns unchanged. */
  #keepDisk({ taken, wanted, disk }: FakeMachine, volumeId: string): void {
    if (taken?.volume_id === volumeId) this.volumes.set(volumeId, taken);
    else this.plantVolume(volumeId, wanted.spec.rootfs_size_gb);
    this.contents.set(volumeId, { content: disk, generation: 1 });
  }

  #snapshot(id: string): HostSnapshot {
    const snapshot = this.snapshots.get(id);
    if (!snapshot) throw new ServiceError('not_found', 'The host does not know this snapshot.');
    return snapshot;
  }

  #takeSnapshot(machineId: string, id: string, { generation, memory }: TakeSnapshot): HostSnapshot {
    const known = this.snapshots.get(id);
    if (known) return known;
    const { report, wanted } = this.#machine(machineId);
    if (generation < report.generation) throw new ServiceError('conflict', 'older generation');
    if (memory && report.status !== 'running') throw new ServiceError('conflict', 'The machine is not running.');
    if (memory && wanted.volumes?.length) throw new ServiceError('conflict', 'The machine has volumes.');
    const snapshot: HostSnapshot = {
      snapshot_id: id,
      machine_id: machineId,
      kind: memory ? 'memory' : 'disk',
      size_gb: wanted.spec.rootfs_size_gb,
      stored_bytes: memory ? 300_000_000 : 4_000_000,
    };
    this.snapshots.set(id, snapshot);
    return snapshot;
  }

  /** Returns the machine that has the volume plugged in. A machine whose VM died has no volumes. */
  #holderOf(volumeId: string): string | undefined {
    const holders = [...this.machines].filter(
      ([, { report, wanted }]) =>
        report.status !== 'failed' && wanted.volumes?.some(({ volume_id }) => volume_id === volumeId),
    );
    return holders[0]?.[0];
  }

  #checkStuck(now: EnsureMachine | undefined, wanted: EnsureMachine): void {
    for (const id of this.stuck) {
      const has = (of?: EnsureMachine) => of?.volumes?.some(({ volume_id }) => volume_id === id) ?? false;
      if (has(now) !== has(wanted)) throw new ServiceError('conflict', `Volume ${id} is in use by process 7 (sleep).`);
    }
  }

  #checkVolume(volumeId: string, machineId: string, desired: EnsureMachine['desired']): void {
    const holder = this.#holderOf(volumeId);
    if (holder !== undefined && holder !== machineId)
      throw new ServiceError('conflict', `Machine ${holder} has volume ${volumeId}.`);
    if (desired === 'running' && this.volumes.get(volumeId)?.kind !== 'data')
      throw new ServiceError('not_found', `The disk of volume ${volumeId} is not there.`);
  }

  #startJob(machineId: string, jobId: string, wanted: StartJob): JobReport {
    const { command = '', generation } = wanted;
    const machine = this.#machine(machineId);
    if (machine.report.status !== 'running') throw new ServiceError('conflict', 'The machine is not running.');
    if (!(generation >= machine.bootGeneration))
      throw new ServiceError(
        'conflict',
        'The machine was stopped or changed since the command was sent. Send it again.',
      );
    const known = machine.jobs.get(jobId);
    if (known) return known.report;
    const report: JobReport = {
      job_id: jobId,
      machine_id: machineId,
      status: 'running',
      exit_code: null,
      signal: null,
      stdout_bytes: 0,
      stderr_bytes: 0,
      truncated: false,
      finished_at: null,
      output_expired: false,
    };
    machine.jobs.set(jobId, { report, stdout: Buffer.alloc(0), wanted });
    const [word, ...rest] = command.split(' ');
    if (word === 'print') this.append(machineId, jobId, Buffer.from(rest.join(' ')));
    if (word === 'bytes') this.append(machineId, jobId, patternOf(Number(rest[0])));
    if (word === 'exit') queueMicrotask(() => this.endJob(machineId, jobId, { exit_code: Number(rest[0]) }));
    else if (word !== 'sleep') queueMicrotask(() => this.endJob(machineId, jobId));
    return report;
  }

  #loseJobs(machine: FakeMachine): void {
    for (const job of machine.jobs.values()) {
      if (job.report.status !== 'running') continue;
      job.report = { ...job.report, status: 'lost', finished_at: new Date().toISOString() };
      this.#changes.emit(job.report.job_id);
    }
  }

  #reports = (): MachineReport[] => [...this.machines.values()].map((machine) => machine.report);

  #machine(id: string): FakeMachine {
    const machine = this.machines.get(id);
    if (!machine) throw new ServiceError('not_found', 'The host does not know this machine.');
    return machine;
  }

  #job(machineId: string, jobId: string): Job {
    const job = this.#machine(machineId).jobs.get(jobId);
    if (!job) throw new ServiceError('not_found', 'The host does not know this job.');
    return job;
  }

  #emit(event: HostEvent): void {
    if (!this.isMute) this.#events.emit('event', event);
  }

  async #waitUntil(jobId: string, condition: () => boolean, waitMs = '0'): Promise<void> {
    const signal = AbortSignal.timeout(Number(waitMs) + 1);
    while (!condition() && !signal.aborted && this.#server) {
      await once(this.#changes, jobId, { signal }).catch(() => undefined);
    }
  }

  #takeFault(operation: Operation): Fault | undefined {
    const planned = this.#faults.get(operation);
    if (!planned || planned.times <= 0) return undefined;
    planned.times--;
    return planned.fault;
  }
}

/** Bytes that differ by position, so that a test notices pages that are swapped or repeated. */
export function patternOf(length: number): Buffer {
  const bytes = Buffer.alloc(length);
  for (let index = 0; index < length; index++) bytes[index] = (index * 31 + (index >> 8) * 7) & 255;
  return bytes;
}

function drop(reply: FastifyReply): FastifyReply {
  reply.hijack();
  reply.raw.destroy();
  return reply;
}
