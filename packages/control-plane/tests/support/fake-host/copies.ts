// The copies of volumes and stopped machines that a fake host sends to another one and receives. On the wire, a copy is
// JSON: what the disk contains, and with a machine also its jobs.
import type { Readable } from 'node:stream';
import { text } from 'node:stream/consumers';
import { ServiceError } from '@sandbar/contract/errors.ts';
import {
  type EnsureMachine,
  HOST_PATHS,
  type HostSnapshot,
  type HostVolume,
  type MachineReport,
  type ReceivedMachine,
} from '@sandbar/contract/host-api.ts';
import type { FastifyInstance } from 'fastify';
import { leaseAddress } from './addresses.ts';
import type { Handle } from './calls.ts';
import { type FakeState, type Job, machineOf, reportsOf } from './state.ts';

type SentVolume = { volume: HostVolume; content: string };
type SentMachine = {
  wanted: EnsureMachine;
  disk: string;
  output: [string, Omit<Job, 'stdout'> & { stdout: string }][];
  snapshots: HostSnapshot[];
};

export function addCopyRoutes(server: FastifyInstance, host: FakeState, handle: Handle): void {
  const copies = [
    [HOST_PATHS.volumeCopy, sendVolume, receiveVolume],
    [HOST_PATHS.machineCopy, sendMachine, receiveMachine],
  ] as const;
  type Copy = { Params: { id: string }; Querystring: { generation?: string } };
  for (const [path, send, receive] of copies) {
    server.get<Copy>(path, ({ params }, reply) =>
      handle('sendCopy', params.id, reply, () => {
        reply.type('application/octet-stream');
        return Buffer.from(JSON.stringify(send(host, params.id)));
      }),
    );
    server.put<Copy>(path, async ({ params, query, body }, reply) => {
      const sent = JSON.parse(await text(body as Readable));
      return handle('receiveCopy', params.id, reply, () => receive(host, params.id, Number(query.generation), sent));
    });
  }
}

function sendVolume({ volumes, contents }: FakeState, id: string): SentVolume {
  const [volume, held] = [volumes.get(id), contents.get(id)];
  if (!volume || !held) throw new ServiceError('not_found', 'The host has no such volume.');
  return { volume, content: held.content };
}

function receiveVolume(
  { volumes, contents, removedVolumes, lacksImages }: FakeState,
  id: string,
  generation: number,
  { volume, content }: SentVolume,
): HostVolume {
  const present = contents.get(id)?.generation ?? 0;
  if ((removedVolumes.get(id) ?? 0) >= generation || present > generation)
    throw new ServiceError('conflict', 'A later generation of the volume was here.');
  if (volume.kind === 'root' && lacksImages) throw new ServiceError('conflict', 'The host lacks the image.');
  if (present < generation) {
    volumes.set(id, volume);
    contents.set(id, { content, generation });
  }
  return volume;
}

function sendMachine(host: FakeState, id: string): SentMachine {
  const { report, wanted, disk, jobs } = machineOf(host, id);
  if (report.status !== 'stopped') throw new ServiceError('conflict', 'The machine is not stopped.');
  const output = [...jobs].map(([jobId, job]): SentMachine['output'][number] => [
    jobId,
    { ...job, stdout: job.stdout.toString('base64') },
  ]);
  return { wanted, disk, output, snapshots: host.leavesSnapshots ? [] : snapshotsOf(host, id) };
}

export const snapshotsOf = (host: FakeState, machineId: string): HostSnapshot[] =>
  [...host.snapshots.values()].filter((snapshot) => snapshot.machine_id === machineId);

function receiveMachine(
  host: FakeState,
  id: string,
  generation: number,
  sent: SentMachine,
): MachineReport | ReceivedMachine {
  const report = takeIn(host, id, generation, sent);
  if (host.leavesSnapshots) return report;
  return { ...report, snapshot_ids: snapshotsOf(host, id).map((snapshot) => snapshot.snapshot_id) };
}

function takeIn(
  host: FakeState,
  id: string,
  generation: number,
  { wanted, disk, output, snapshots }: SentMachine,
): MachineReport {
  if ((host.destroyed.get(id) ?? 0) >= generation) throw new ServiceError('conflict', 'it was destroyed');
  const known = host.machines.get(id)?.report;
  if (known?.generation === generation) return known;
  if (known) throw new ServiceError('conflict', 'The machine is here as another generation.');
  if (host.lacksImages) throw new ServiceError('conflict', 'The host lacks the image.');
  const report: MachineReport = {
    ...{ machine_id: id, generation, status: 'stopped', reason: null, isolation: host.info.isolation },
    private_ip: leaseAddress(host, new Set(reportsOf(host).map((machine) => machine.private_ip))),
    output_revision: null,
  };
  const jobs = new Map(output.map(([jobId, job]) => [jobId, { ...job, stdout: Buffer.from(job.stdout, 'base64') }]));
  for (const one of snapshots) host.snapshots.set(one.snapshot_id, one);
  host.machines.set(id, { report, wanted, disk, jobs, taken: undefined, restores: [], bootGeneration: 0 });
  return report;
}
