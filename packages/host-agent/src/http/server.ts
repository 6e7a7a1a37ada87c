// Serves the host API. Requests are checked against the contract's schemas, and errors are sent with
// their code.
import type { TypeBoxTypeProvider } from '@fastify/type-provider-typebox';
import { isErrorCode, ServiceError } from '@sandbar/contract/errors.ts';
import { HOST_HEADER_BYTES } from '@sandbar/contract/guest-calls.ts';
import {
  EnsureMachine,
  EnsureVolume,
  HOST_PATHS,
  HostAudit,
  HostAuditFix,
  type HostEvent,
  type HostInfo,
  HostJobList,
  HostJobParams,
  HostJobQuery,
  HostKeptOutput,
  HostMachineDeleteQuery,
  HostMachineEnsureQuery,
  HostMachineList,
  HostMachineParams,
  HostMachineSnapshotParams,
  HostOutputQuery,
  HostSnapshot,
  HostSnapshotList,
  HostSnapshotParams,
  HostVolume,
  HostVolumeDeleteQuery,
  HostVolumeList,
  HostVolumeParams,
  JobAnswer,
  JobReport,
  MachineReport,
  OUTPUT_HEADERS,
  StartJob,
  TakeSnapshot,
} from '@sandbar/contract/host-api.ts';
import { traceRequests } from '@sandbar/tracing/fastify.ts';
import type { Tracing } from '@sandbar/tracing/tracing.ts';
import Fastify, {
  type FastifyBaseLogger,
  type FastifyError,
  type FastifyReply,
  type FastifyRequest,
  LogController,
} from 'fastify';
import type { Registry } from 'prom-client';
import type { HostAuditor } from '../audit/host-auditor.ts';
import type { FleetMember } from '../fleet/fleet-member.ts';
import type { Job } from '../jobs/job.ts';
import type { MachineRegistry } from '../machines/registry.ts';
import type { MachineCopies } from '../moves/machine-copies.ts';
import type { VolumeCopies } from '../moves/volume-copies.ts';
import type { SnapshotStore } from '../snapshots/snapshot-store.ts';
import type { DataVolumes } from '../storage/data-volumes.ts';
import type { DiskRoom } from '../storage/disk-reserve.ts';
import type { Garbage } from '../storage/garbage.ts';
import type { VolumeStore } from '../storage/volume-store.ts';
import { addBlobRoutes, type BlobServices } from './blob-routes.ts';
import { addCertificateRoutes } from './certificate-routes.ts';
import { addCopyRoutes } from './copy-routes.ts';
import { addGuestRoutes } from './guest-routes.ts';
import { addPortRoute } from './port-route.ts';

/** Enough for a stdin of 512 KiB in base64 and the other fields of a job. */
const BODY_LIMIT_BYTES = 2 * 1024 * 1024;
const HEARTBEAT_MS = 5000;

export type HostServices = {
  info: () => HostInfo;
  bootId: string;
  machines: MachineRegistry;
  volumes: VolumeStore;
  dataVolumes: DataVolumes;
  volumeCopies: VolumeCopies;
  machineCopies: MachineCopies;
  snapshots: SnapshotStore;
  garbage: Garbage;
  /** What moves files between this host and the object store. */
  transfers: Pick<BlobServices, 'blobs' | 'transfer' | 'images'>;
  room: DiskRoom;
  audit: HostAuditor;
  /** The metrics of this agent. */
  registry: Registry;
  tracing: Tracing;
  /** Undefined when the host has not joined a fleet. */
  member?: FleetMember | undefined;
};

export function buildServer(services: HostServices, log: FastifyBaseLogger) {
  const { info, bootId, machines, volumes, dataVolumes, snapshots, garbage, room, audit } = services;
  const { volumeCopies, machineCopies, member, registry, tracing } = services;
  const allVolumes = () => [...volumes.list(), ...dataVolumes.list()];
  const server = Fastify({
    loggerInstance: log,
    logController: new LogController({ disableRequestLogging: true }),
    bodyLimit: BODY_LIMIT_BYTES,
    http: { maxHeaderSize: HOST_HEADER_BYTES },
    // An environment variable of a job may have any name, so names such as `__proto__` must not be refused.
    onProtoPoisoning: 'ignore',
    onConstructorPoisoning: 'ignore',
    forceCloseConnections: true,
    ajv: { customOptions: { removeAdditional: false } },
  }).withTypeProvider<TypeBoxTypeProvider>();
  traceRequests(server, tracing, { beginsTraces: false, describe: describeRequest });
  server.setErrorHandler<FastifyError | ServiceError>((error, request, reply) => {
    const known = toServiceError(error);
    if (known.code === 'internal_error')
      request.log.error({ err: error, url: request.routeOptions.url }, 'a host call failed');
    if (known.retryAfterSec !== undefined) reply.header('retry-after', known.retryAfterSec);
    return reply.status(known.status).send({ code: known.code, detail: known.message });
  });

  // The code is not `not_found`, because the control plane would conclude that the machine is gone.
  server.setNotFoundHandler(() => {
    throw new ServiceError('internal_error', 'the host agent has no such call: is it older than the control plane?');
  });

  server.get(HOST_PATHS.host, () => info());

  server.get(HOST_PATHS.metrics, async (_request, reply) =>
    reply.type(registry.contentType).send(await registry.metrics()),
  );

  server.get(HOST_PATHS.machines, { schema: { response: { 200: HostMachineList } } }, () => ({
    boot_id: bootId,
    machines: machines.reports(),
  }));

  server.get(
    HOST_PATHS.machine,
    { schema: { params: HostMachineParams, response: { 200: MachineReport } } },
    (request) => machines.get(request.params.id).report(),
  );

  server.put(
    HOST_PATHS.machine,
    {
      schema: {
        params: HostMachineParams,
        querystring: HostMachineEnsureQuery,
        body: EnsureMachine,
        response: { 200: MachineReport },
      },
    },
    ({ params, query, body }) => machines.ensure(params.id, body, { onlyIfRunning: query.only_if_running === true }),
  );

  server.delete(
    HOST_PATHS.machine,
    { schema: { params: HostMachineParams, querystring: HostMachineDeleteQuery } },
    async (request, reply) => {
      const { generation, keep_volume_id: keepVolumeId, with_snapshots: withSnapshots = false } = request.query;
      await machineCopies.remove(request.params.id, generation, { keepVolumeId, withSnapshots });
      return reply.status(204).send();
    },
  );

  server.get(HOST_PATHS.jobs, { schema: { params: HostMachineParams, response: { 200: HostJobList } } }, (request) => ({
    jobs: machines.get(request.params.id).runningJobs(),
  }));

  server.get(
    HOST_PATHS.keptOutput,
    { schema: { params: HostMachineParams, response: { 200: HostKeptOutput } } },
    (request) => machines.get(request.params.id).keptOutput(),
  );

  server.put(
    HOST_PATHS.job,
    { schema: { params: HostJobParams, querystring: HostJobQuery, body: StartJob, response: { 201: JobAnswer } } },
    async ({ params, query, body }, reply) => {
      const machine = machines.get(params.id);
      // While the host's disk is short, all guests are stopped and would not answer, so the job is refused at once.
      room.refuseWhenShort();
      const job = await machine.startJob(params.job_id, body);
      return reply.status(201).send(await answerOf(job, query));
    },
  );

  server.get(
    HOST_PATHS.job,
    { schema: { params: HostJobParams, querystring: HostJobQuery, response: { 200: JobAnswer } } },
    async ({ params, query }) => {
      return answerOf(await machines.get(params.id).job(params.job_id), query);
    },
  );

  server.post(HOST_PATHS.jobCancel, { schema: { params: HostJobParams, response: { 200: JobReport } } }, (request) =>
    machines.get(request.params.id).cancelJob(request.params.job_id),
  );

  server.get(
    HOST_PATHS.jobOutput,
    { schema: { params: HostJobParams, querystring: HostOutputQuery } },
    async (request, reply) => {
      const { stream, offset, limit, wait_ms: waitMs } = request.query;
      const job = await machines.get(request.params.id).job(request.params.job_id);
      const page = await job.readOutput(stream, offset, limit, waitMs);
      return reply
        .header('content-type', 'application/octet-stream')
        .header(OUTPUT_HEADERS.nextOffset, page.nextOffset)
        .header(OUTPUT_HEADERS.totalBytes, page.totalBytes)
        .header(OUTPUT_HEADERS.eof, page.eof)
        .send(page.data);
    },
  );

  addGuestRoutes(server, machines);
  addBlobRoutes(server, { ...services.transfers, snapshots, garbage });
  addPortRoute(server, machines, (error) => toServiceError(error as FastifyError));

  if (member !== undefined) addCertificateRoutes(server, member);

  server.get(HOST_PATHS.volumes, { schema: { response: { 200: HostVolumeList } } }, () => ({
    volumes: allVolumes(),
  }));

  server.put(
    HOST_PATHS.volume,
    { schema: { params: HostVolumeParams, body: EnsureVolume, response: { 200: HostVolume } } },
    async (request) => {
      const { id } = request.params;
      if (!dataVolumes.has(id)) room.refuseWhenShort();
      await dataVolumes.ensure(id, request.body.size_gb);
      return { volume_id: id, size_gb: request.body.size_gb, kind: 'data' as const };
    },
  );

  server.delete(
    HOST_PATHS.volume,
    { schema: { params: HostVolumeParams, querystring: HostVolumeDeleteQuery } },
    async (request, reply) => {
      await volumeCopies.remove(request.params.id, request.query.generation);
      garbage.collectSoon();
      return reply.status(204).send();
    },
  );

  addCopyRoutes(server, volumeCopies, machineCopies);

  server.put(
    HOST_PATHS.machineSnapshot,
    { schema: { params: HostMachineSnapshotParams, body: TakeSnapshot, response: { 200: HostSnapshot } } },
    (request) => machines.takeSnapshot(request.params.id, request.params.snapshot_id, request.body),
  );

  server.get(HOST_PATHS.snapshots, { schema: { response: { 200: HostSnapshotList } } }, () => ({
    snapshots: snapshots.list(),
  }));

  server.delete(HOST_PATHS.snapshot, { schema: { params: HostSnapshotParams } }, async (request, reply) => {
    snapshots.remove(request.params.id);
    garbage.collectSoon();
    return reply.status(204).send();
  });

  server.get(HOST_PATHS.audit, { schema: { response: { 200: HostAudit } } }, async () => ({
    findings: await audit.look(),
    machines: machines.reports(),
    volumes: allVolumes(),
    snapshots: snapshots.list(),
  }));

  server.post(HOST_PATHS.auditFix, { schema: { response: { 200: HostAuditFix } } }, async () => {
    const { findings, fixed } = await audit.fix();
    return { findings, fixed, machines: machines.reports(), volumes: allVolumes(), snapshots: snapshots.list() };
  });

  server.get(HOST_PATHS.events, (request, reply) => {
    reply.hijack();
    const response = reply.raw;
    const send = (event: HostEvent) => response.write(`${JSON.stringify(event)}\n`);
    response.writeHead(200, { 'content-type': 'application/x-ndjson' });
    // In a packet of their own: the control plane keeps the packet with the headers as long as the stream is open.
    response.flushHeaders();
    machines.events.on('event', send);
    const heartbeat = setInterval(() => send({ type: 'heartbeat' }), HEARTBEAT_MS);
    request.raw.socket.on('close', () => {
      clearInterval(heartbeat);
      machines.events.off('event', send);
    });
    for (const machine of machines.reports()) send({ type: 'machine', machine });
    send({ type: 'synced' });
  });

  return server;
}

/** Waits for the end of the job as long as the query says, and returns its report, with its output if that is wanted. */
async function answerOf(job: Job, query: HostJobQuery): Promise<JobAnswer> {
  const report = await job.waitForEnd(query.wait_ms);
  const output = query.output_limit === undefined ? undefined : job.readAll(query.output_limit);
  if (output === undefined) return report;
  const { stdout, stderr } = output;
  return { ...report, output: { stdout: stdout.toString('base64'), stderr: stderr.toString('base64') } };
}

/** What the trace of a call says about it. */
function describeRequest({ params }: FastifyRequest, { statusCode }: FastifyReply) {
  const { id } = Object(params) as { id?: string };
  return { attributes: { 'sandbar.subject_id': id }, error: statusCode >= 500 ? String(statusCode) : undefined };
}

function toServiceError(error: FastifyError | ServiceError): ServiceError {
  if (error instanceof ServiceError) return error;
  if (isErrorCode(error.code)) return new ServiceError(error.code, error.message);
  if (error.statusCode !== undefined && error.statusCode < 500)
    return new ServiceError('validation_error', error.message);
  return new ServiceError('internal_error', 'the host agent failed; its log says more', { cause: error });
}
