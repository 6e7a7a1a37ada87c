// The host API: the calls that the control plane makes to a host agent, over a Unix socket on the same machine. Every
// call describes the desired state, names the machine and its generation, and may be repeated. A repeated call, or a
// call with an older generation than an earlier call, changes nothing.
import { type Static, Type } from 'typebox';
import { EXEC_BOUNDS, Exec, ExecCreate, OUTPUT_STREAMS } from './exec.ts';
import { JOB_STATUSES } from './exec-states.ts';
import { Nullable, OneOf, Uuid } from './fields.ts';
import { Image } from './image.ts';
import { ISOLATIONS } from './machine-states.ts';
import { HOSTNAME_PATTERN } from './patterns.ts';
import { SNAPSHOT_KINDS } from './snapshot.ts';
import { VOLUME_BOUNDS, VOLUME_KINDS } from './volume-states.ts';

/** The properties of a machine that never change. */
export const MachineSpec = Type.Object(
  {
    vcpus: Type.Integer({ minimum: 1 }),
    memory_mb: Type.Integer({ minimum: 128 }),
    rootfs_size_gb: Type.Integer({ minimum: 1 }),
    stack: Type.String(),
    private_ip: Type.Optional(
      Type.String({
        format: 'ipv4',
        description:
          "An address of the host's subnet. Left out at the first call: the host leases one, and tells it in the report.",
      }),
    ),
    hostname: Type.String({
      pattern: HOSTNAME_PATTERN,
      description: 'The hostname, unless the machine takes over that of a clone in the pool.',
    }),
    snapshot_id: Type.Optional(Uuid('Its disk begins as this snapshot of the host.')),
    root_volume_id: Type.Optional(Uuid('Its disk is this root volume, which is no volume any more then.')),
  },
  { additionalProperties: false },
);
export type MachineSpec = Static<typeof MachineSpec>;

/** A data volume that is attached to a machine, and the path at which the machine mounts it. */
export const MachineVolume = Type.Object(
  { volume_id: Uuid(), mount_path: Type.String({ minLength: 2 }) },
  { additionalProperties: false },
);
export type MachineVolume = Static<typeof MachineVolume>;

export const EnsureMachine = Type.Object(
  {
    generation: Type.Integer({
      minimum: 1,
      description: 'Grows with every change of what is wanted; an older one is a 409.',
    }),
    desired: OneOf(['running', 'stopped']),
    spec: MachineSpec,
    volumes: Type.Optional(
      Type.Array(MachineVolume, {
        maxItems: VOLUME_BOUNDS.perMachine,
        default: [],
        description:
          'All volumes that the machine should have. A running machine gets and loses them at once; a busy volume is a 409.',
      }),
    ),
    restore_snapshot_id: Type.Optional(
      Uuid(
        'The root disk first goes back to this snapshot, once for each generation. A running machine is ended for it.',
      ),
    ),
  },
  { additionalProperties: false },
);
export type EnsureMachine = Static<typeof EnsureMachine>;

/** The states of a machine that a host reports. `failed`: the machine's VM died by itself, for the reported reason. */
export const HOST_MACHINE_STATUSES = ['starting', 'running', 'stopped', 'failed'] as const;
/**
 * How a host starts a machine: with a clone that waited in the pool, a clone that it made now, a clone of a bare template
 * on the machine's own disk, from a memory snapshot, or by a cold boot.
 */
export const START_PATHS = ['pool', 'clone', 'bare', 'resume', 'cold'] as const;
export type StartPath = (typeof START_PATHS)[number];

export const MachineReport = Type.Object({
  machine_id: Uuid(),
  generation: Type.Integer(),
  status: OneOf(HOST_MACHINE_STATUSES),
  reason: Nullable(Type.String({ description: 'A sentence: why it failed, or why it stopped without being asked.' })),
  isolation: OneOf(ISOLATIONS),
  private_ip: Nullable(
    Type.String({ format: 'ipv4', description: 'What the record of the machine on the host says; never changes.' }),
  ),
  output_revision: Nullable(
    Type.String({
      description:
        'Another text whenever output of ended jobs was dropped; null while all of it is there. Ask for the kept jobs then.',
    }),
  ),
  start_path: Type.Optional(
    OneOf(START_PATHS, { description: 'Only in the answer to the call that started the machine: how it was started.' }),
  ),
});
export type MachineReport = Static<typeof MachineReport>;

/** The fields of a job that a host reports; the control plane stores the same fields. */
export const JobReport = Type.Object({
  ...Type.Pick(Exec, [
    'status',
    'exit_code',
    'signal',
    'stdout_bytes',
    'stderr_bytes',
    'truncated',
    'finished_at',
    'output_expired',
  ]).properties,
  job_id: Uuid(),
  machine_id: Uuid(),
  status: OneOf(JOB_STATUSES),
  stdin_bytes: Type.Optional(
    Type.Integer({ description: 'Bytes of stdin that an ended job with stdin_open had accepted. Absent if unknown.' }),
  ),
});
export type JobReport = Static<typeof JobReport>;

/** The answer of the calls that start a job and that read one. */
export const JobAnswer = Type.Object({
  ...JobReport.properties,
  output: Type.Optional(
    Type.Object(
      { stdout: Type.String(), stderr: Type.String() },
      { description: 'All output of an ended job, in base64. Only if output_limit allows it.' },
    ),
  ),
});
export type JobAnswer = Static<typeof JobAnswer>;

export const StartJob = Type.Object(
  {
    // The host does not need these two fields: the job's id is in the path, and its name is a label for people.
    ...Type.Omit(ExecCreate, ['exec_id', 'name']).properties,
    merge_output: Type.Optional(
      Type.Boolean({ default: false, description: 'Put stderr into stdout, in the order in which it was written.' }),
    ),
    timeout_sec: Type.Integer({ minimum: 1, maximum: EXEC_BOUNDS.timeoutSecMax }),
    generation: Type.Integer({
      minimum: 1,
      description:
        "The machine's. One from before its present boot is a 409, so that a late call starts nothing in the next boot.",
    }),
  },
  { additionalProperties: false },
);
export type StartJob = Static<typeof StartJob>;

/** What machines that start from the same template have in common. */
export const MachineShape = Type.Object({ stack: Type.String(), vcpus: Type.Integer(), memory_mb: Type.Integer() });
export type MachineShape = Static<typeof MachineShape>;

export const HostInfo = Type.Object({
  host_id: Uuid('Made once, kept in the data directory.'),
  version: Type.String(),
  boot_id: Type.String({ description: "The kernel's boot id: a new one means that every VM of the old boot is gone." }),
  isolation: OneOf(ISOLATIONS),
  network: OneOf(['bridge', 'user'], {
    description: 'bridge: taps on a bridge. user: the unprivileged stack of QEMU.',
  }),
  subnet: Type.String({ description: 'CIDR that private_ip is taken from; the first address is the gateway.' }),
  cpus: Type.Integer(),
  memory_mb: Type.Integer({ description: 'Physical memory, MiB.' }),
  disk: Type.Object(
    {
      total_mb: Type.Integer(),
      free_mb: Type.Integer(),
      reserve_mb: Type.Integer({
        description: 'What machines cannot use of it, so that the service can always write.',
      }),
    },
    { description: 'The file system with the data directory, MiB.' },
  ),
  images: Type.Array(Image),
  lacks: Type.Optional(
    Type.Array(Type.String(), { description: 'What isolates machines elsewhere and not on this host, in sentences.' }),
  ),
  processor: Type.Optional(
    Type.String({
      description: 'Equal on hosts that give machines the same processor. Saved memory may move between them.',
    }),
  ),
  pool: Type.Optional(
    Type.Object({ ready: Type.Integer(), target: Type.Integer() }, { description: 'Clones that wait for a machine.' }),
  ),
  templates: Type.Optional(
    Type.Array(MachineShape, { description: 'Machines of these shapes start as clones, which is faster than a boot.' }),
  ),
});
export type HostInfo = Static<typeof HostInfo>;

/**
 * A line of `GET /v1/events` (NDJSON). A stream sends a report of every machine, then one `synced`, then each machine
 * that stops or fails and each job that ends, with a `heartbeat` every 5 seconds. A start is not reported: whoever asks
 * for it gets the answer. When a job ends while no client has the stream open, no later stream reports that end, so the
 * client must ask for the job by its id.
 */
export const HostEvent = Type.Union([
  Type.Object({ type: Type.Literal('machine'), machine: MachineReport }),
  Type.Object({ type: Type.Literal('job'), job: JobReport }),
  Type.Object({ type: Type.Literal('synced') }),
  Type.Object({ type: Type.Literal('heartbeat') }),
]);
export type HostEvent = Static<typeof HostEvent>;

/** A page of output is sent as raw bytes in the body. These headers give the page's position in the stream. */
export const OUTPUT_HEADERS = {
  nextOffset: 'sandbar-next-offset',
  totalBytes: 'sandbar-total-bytes',
  eof: 'sandbar-eof',
} as const;

export const HostMachineParams = Type.Object({ id: Uuid() });
export const HostJobParams = Type.Object({ id: Uuid(), job_id: Uuid() });
/**
 * A parameter of the query and no field of {@link EnsureMachine}, because an agent of an earlier version refuses a body
 * with an unknown field but ignores an unknown parameter.
 */
export const HostMachineEnsureQuery = Type.Object({
  only_if_running: Type.Optional(
    Type.Boolean({
      description:
        'Change the machine only while it runs. If it has ended, nothing is changed or started, and the answer is a 409.',
    }),
  ),
});
export const HostMachineDeleteQuery = Type.Object({
  generation: Type.Integer({ minimum: 1 }),
  keep_volume_id: Type.Optional(
    Uuid('Keep the root disk: it becomes this volume, after the guest had 10 s to power off.'),
  ),
  with_snapshots: Type.Optional(
    Type.Boolean({
      description: 'Deletes the snapshots of the machine too, unless a newer generation of the machine is here.',
    }),
  ),
});
export const HostMachineList = Type.Object({ boot_id: Type.String(), machines: Type.Array(MachineReport) });
/** A volume of this host. Its disk is complete and synced, so it survives a power failure. */
export const HostVolume = Type.Object({
  volume_id: Uuid(),
  size_gb: Type.Integer(),
  kind: OneOf(VOLUME_KINDS),
});
export type HostVolume = Static<typeof HostVolume>;
export const HostVolumeDeleteQuery = Type.Object({
  generation: Type.Optional(
    Type.Integer({
      minimum: 1,
      description:
        'Deletes copies of this generation and older ones only, so that a late call never deletes a disk that has come back.',
    }),
  ),
});
/** Takes in a copy that another host sends. Does nothing when this host has this generation already. */
export const HostCopyQuery = Type.Object({ generation: Type.Integer({ minimum: 1 }) });
/** A machine that was taken in. */
export const ReceivedMachine = Type.Object({
  ...MachineReport.properties,
  snapshot_ids: Type.Array(Uuid(), { description: 'The snapshots of the machine that are on this host now.' }),
});
export type ReceivedMachine = Static<typeof ReceivedMachine>;
export const HostVolumeList = Type.Object({ volumes: Type.Array(HostVolume) });
/** Makes a data volume. Does nothing when the volume exists already. */
export const EnsureVolume = Type.Object(
  { size_gb: Type.Integer({ minimum: 1, maximum: VOLUME_BOUNDS.sizeGbMax }) },
  { additionalProperties: false },
);
export type EnsureVolume = Static<typeof EnsureVolume>;

/** Takes a snapshot. Does nothing when the snapshot exists already. */
export const TakeSnapshot = Type.Object(
  {
    generation: Type.Integer({ minimum: 1, description: "The machine's; an older one is a 409." }),
    memory: Type.Boolean(),
  },
  { additionalProperties: false },
);
export type TakeSnapshot = Static<typeof TakeSnapshot>;

/** A snapshot of this host. All its files are complete and synced, so it survives a power failure. */
export const HostSnapshot = Type.Object({
  snapshot_id: Uuid(),
  machine_id: Uuid(),
  kind: OneOf(SNAPSHOT_KINDS),
  size_gb: Type.Integer(),
  stored_bytes: Type.Integer(),
});
export type HostSnapshot = Static<typeof HostSnapshot>;
export const HostSnapshotList = Type.Object({ snapshots: Type.Array(HostSnapshot) });
export const HostSnapshotParams = Type.Object({ id: Uuid() });
export const HostMachineSnapshotParams = Type.Object({ id: Uuid(), snapshot_id: Uuid() });
export const HostVolumeParams = Type.Object({ id: Uuid() });
export const HostJobList = Type.Object({ jobs: Type.Array(JobReport) });
/** The jobs of a machine whose output can be read: running jobs, and ended jobs whose output the host keeps. */
export const HostKeptOutput = Type.Object({
  output_revision: Nullable(Type.String({ description: 'As in the report of the machine, at the same moment.' })),
  job_ids: Type.Array(Uuid()),
});
export type HostKeptOutput = Static<typeof HostKeptOutput>;

export const HOST_FINDING_KINDS = ['process', 'tap', 'rules', 'cgroup', 'file', 'mount'] as const;
/** Something on a host that should not exist, or something that should exist on the host but is missing. */
export const HostFinding = Type.Object({
  kind: OneOf(HOST_FINDING_KINDS),
  subject: Type.String({ description: 'What it is, such as "QEMU process 1234" or a path.' }),
  detail: Type.String({ description: 'A sentence: why it should not be there, or is missing.' }),
  fixable: Type.Boolean({ description: 'Whether the host can repair it: it is certainly ours, or can be made again.' }),
});
export type HostFinding = Static<typeof HostFinding>;

/** The findings of a host that compared its processes and files with its own records, and these records. */
export const HostAudit = Type.Object({
  findings: Type.Array(HostFinding),
  machines: Type.Array(MachineReport),
  volumes: Type.Array(HostVolume),
  snapshots: Type.Array(HostSnapshot),
});
export type HostAudit = Static<typeof HostAudit>;

/** The result of a repair: the findings that remain (`findings`), and the repaired findings (`fixed`). */
export const HostAuditFix = Type.Object({ ...HostAudit.properties, fixed: Type.Array(HostFinding) });
export type HostAuditFix = Static<typeof HostAuditFix>;
export const HostWaitQuery = Type.Object({
  wait_ms: Type.Integer({ minimum: 0, maximum: EXEC_BOUNDS.waitMsMax, default: 0 }),
});
/** The most bytes of output that a {@link JobAnswer} may have. */
export const OUTPUT_LIMIT_MAX = 64 * 1024;
/**
 * The query of the calls that start a job and that read one. An agent of an earlier version does not wait when it starts
 * a job, and its answers never have output.
 */
export const HostJobQuery = Type.Object({
  ...HostWaitQuery.properties,
  output_limit: Type.Optional(
    Type.Integer({
      minimum: 0,
      maximum: OUTPUT_LIMIT_MAX,
      description: 'Answer the output of an ended job too, if both streams together have at most so many bytes.',
    }),
  ),
});
export type HostJobQuery = Static<typeof HostJobQuery>;
export const HostOutputQuery = Type.Object({
  stream: OneOf(OUTPUT_STREAMS),
  offset: Type.Integer({ minimum: 0 }),
  limit: Type.Integer({ minimum: 1, maximum: EXEC_BOUNDS.pageBytesMax }),
  wait_ms: Type.Integer({ minimum: 0, maximum: EXEC_BOUNDS.waitMsMax, default: 0 }),
});

/** The protocol after the upgrade of a connection to a port of a machine: the bytes as they are. */
export const PORT_UPGRADE = 'sandbar-port';

/** The paths of all operations. */
export const HOST_PATHS = {
  host: '/v1/host',
  /** Metrics as text for Prometheus. */
  metrics: '/v1/metrics',
  events: '/v1/events',
  machines: '/v1/machines',
  machine: '/v1/machines/:id',
  jobs: '/v1/machines/:id/jobs',
  keptOutput: '/v1/machines/:id/kept-output',
  job: '/v1/machines/:id/jobs/:job_id',
  jobCancel: '/v1/machines/:id/jobs/:job_id/cancel',
  jobOutput: '/v1/machines/:id/jobs/:job_id/output',
  guestCall: '/v1/machines/:id/calls/:name',
  guestStream: '/v1/machines/:id/streams/:name',
  /** Upgraded to a connection to the port, see {@link PORT_UPGRADE}. */
  port: '/v1/machines/:id/ports/:port',
  machineSnapshot: '/v1/machines/:id/snapshots/:snapshot_id',
  snapshots: '/v1/snapshots',
  snapshot: '/v1/snapshots/:id',
  volumes: '/v1/volumes',
  volume: '/v1/volumes/:id',
  /** GET sends a volume for another host, PUT takes in what GET sent (host-agent/src/moves/archive.ts). */
  volumeCopy: '/v1/volumes/:id/copy',
  /** The same for a stopped machine. */
  machineCopy: '/v1/machines/:id/copy',
  audit: '/v1/audit',
  auditFix: '/v1/audit/fix',
} as const;
