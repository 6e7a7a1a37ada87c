// Exec jobs: a command that runs in a machine, its state, and its output, which is read in pages.
import { type Static, Type } from 'typebox';
import { EXEC_BOUNDS } from './exec-bounds.ts';
import { JOB_SIGNALS, JOB_STATUSES } from './exec-states.ts';
import { Environment, NextCursor, Nullable, OneOf, PagingQuery, Timestamp, Uuid } from './fields.ts';
import { ABSOLUTE_PATH_PATTERN, BASE64_PATTERN } from './patterns.ts';

export const OUTPUT_STREAMS = ['stdout', 'stderr'] as const;
export type OutputStream = (typeof OUTPUT_STREAMS)[number];

export { EXEC_BOUNDS };

export const Exec = Type.Object(
  {
    id: Uuid(),
    machine_id: Uuid(),
    name: Type.String({ description: 'The label that the start gave it, or an empty string.' }),
    status: OneOf(JOB_STATUSES, { description: 'lost: the machine stopped or died under the job.' }),
    exit_code: Nullable(Type.Integer({ description: 'Null while it runs and when there was none.' })),
    signal: Nullable(Type.String({ description: 'Such as SIGTERM, when a signal ended the command.' })),
    timeout_sec: Nullable(Type.Integer({ description: 'The real value in the start response, null everywhere else.' })),
    stdout_bytes: Type.Integer({ description: 'Bytes of output so far.' }),
    stderr_bytes: Type.Integer({ description: 'Bytes of output so far.' }),
    truncated: Type.Boolean({ description: 'Output past the limit of a stream was dropped.' }),
    output_expired: Type.Boolean({
      description:
        'The output was dropped, because a machine keeps that of its last 1,000 ended jobs, and 1 GiB in all. Reading it is ' +
        'a 410 output_expired.',
    }),
    created_at: Timestamp(),
    finished_at: Nullable(Timestamp()),
  },
  { title: 'Exec' },
);
export type Exec = Static<typeof Exec>;

export const ExecCreate = Type.Object(
  {
    command: Type.Optional(
      Type.String({
        minLength: 1,
        description: "Run by /bin/sh -c, without the image's entrypoint. Exactly one of command and argv.",
      }),
    ),
    argv: Type.Optional(
      Type.Array(Type.String(), {
        minItems: 1,
        maxItems: 4096,
        description: "Run as it is, after the image's entrypoint where that has one.",
      }),
    ),
    exec_id: Type.Optional(Uuid('Chosen by the client; one used before is a 409.')),
    name: Type.Optional(
      Type.String({ maxLength: EXEC_BOUNDS.nameLength, description: 'A label of the job, shown wherever the job is.' }),
    ),
    merge_output: Type.Optional(
      Type.Boolean({ default: false, description: 'Put stderr into stdout, in the order in which it was written.' }),
    ),
    env: Type.Optional(
      Environment('Added to the environment of the image, the user and the machine; what is set here wins.'),
    ),
    cwd: Type.Optional(
      Type.String({
        maxLength: 4096,
        pattern: ABSOLUTE_PATH_PATTERN,
        description: "An absolute path. Default: the image's working directory, else the user's home.",
      }),
    ),
    user: Type.Optional(
      Type.String({
        minLength: 1,
        maxLength: 64,
        description: "A name or uid, with :group or :gid if wanted. Default: the image's user, else root.",
      }),
    ),
    stdin: Type.Optional(
      Type.String({
        pattern: BASE64_PATTERN,
        maxLength: Math.ceil(EXEC_BOUNDS.stdinBytes / 3) * 4,
        contentEncoding: 'base64',
        description: 'Base64 (RFC 4648, with padding, no line breaks), up to 512 KiB decoded.',
      }),
    ),
    stdin_open: Type.Optional(
      Type.Boolean({
        default: false,
        description:
          'Leave stdin open after the bytes of stdin, which count: the next byte is at their number. More follows with ' +
          'PUT …/stdin. Without it stdin ends after these bytes.',
      }),
    ),
    timeout_sec: Type.Optional(
      Type.Integer({ minimum: 1, maximum: EXEC_BOUNDS.timeoutSecMax, default: EXEC_BOUNDS.timeoutSecDefault }),
    ),
  },
  {
    title: 'ExecCreate',
    additionalProperties: false,
    oneOf: [{ required: ['command'] }, { required: ['argv'] }],
  },
);
export type ExecCreate = Static<typeof ExecCreate>;

export const ExecCreateQuery = Type.Object(
  {
    wait_ms: Type.Optional(
      Type.Integer({
        minimum: 0,
        maximum: EXEC_BOUNDS.waitMsMax,
        description: 'Milliseconds to wait for the end of the job. The answer then has the first page of its output.',
      }),
    ),
  },
  { additionalProperties: false },
);

export const ExecParams = Type.Object({ id: Uuid('The machine.'), exec_id: Uuid('The job.') });

export const ExecListQuery = Type.Object(
  { status: Type.Optional(OneOf(JOB_STATUSES)), ...PagingQuery },
  { additionalProperties: false },
);
export const ExecList = Type.Object({ execs: Type.Array(Exec), next_cursor: NextCursor }, { title: 'ExecList' });

export const ExecStdinQuery = Type.Object(
  {
    offset: Type.Integer({
      minimum: 0,
      maximum: Number.MAX_SAFE_INTEGER,
      description: 'The position of the first byte of the body in the whole stdin of the job.',
    }),
    close: Type.Optional(
      Type.Boolean({
        default: false,
        description: 'End stdin after the body. May be repeated, and the body be empty.',
      }),
    ),
  },
  { additionalProperties: false },
);
export type ExecStdinQuery = Static<typeof ExecStdinQuery>;

export const ExecStdin = Type.Object(
  {
    next_offset: Type.Integer({ description: 'Bytes of stdin that the job has accepted: where the next byte goes.' }),
    closed: Type.Boolean({ description: 'Stdin has ended, so no more bytes are accepted.' }),
  },
  { title: 'ExecStdin' },
);
export type ExecStdin = Static<typeof ExecStdin>;

export const ExecSignal = Type.Object(
  { signal: OneOf(JOB_SIGNALS) },
  { title: 'ExecSignal', additionalProperties: false },
);
export type ExecSignal = Static<typeof ExecSignal>;

const WaitMs = Type.Optional(
  Type.Integer({
    minimum: 0,
    maximum: EXEC_BOUNDS.waitMsMax,
    default: 0,
    description: 'Milliseconds to wait for news.',
  }),
);
export const ExecGetQuery = Type.Object({ wait_ms: WaitMs }, { additionalProperties: false });

export const ExecOutputQuery = Type.Object(
  {
    stream: Type.Optional(OneOf(OUTPUT_STREAMS, { default: 'stdout' })),
    offset: Type.Optional(
      Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER, default: 0, description: 'Bytes.' }),
    ),
    limit: Type.Optional(
      Type.Integer({
        minimum: 1,
        maximum: EXEC_BOUNDS.pageBytesMax,
        default: EXEC_BOUNDS.pageBytesDefault,
        description: 'Bytes.',
      }),
    ),
    wait_ms: WaitMs,
  },
  { additionalProperties: false },
);
export type ExecOutputQuery = Static<typeof ExecOutputQuery>;

export const ExecOutput = Type.Object(
  {
    exec_id: Uuid(),
    stream: OneOf(OUTPUT_STREAMS),
    offset: Type.Integer({ description: 'Byte offset of data in the whole stream.' }),
    data: Type.String({ description: 'Base64.' }),
    next_offset: Type.Integer({ description: 'Where the next page begins.' }),
    total_bytes: Type.Integer({ description: 'Bytes of the stream that can be read so far.' }),
    eof: Type.Boolean({ description: 'The job has ended and this page reaches the end.' }),
  },
  { title: 'ExecOutput' },
);
export type ExecOutput = Static<typeof ExecOutput>;

/** The answer to a start. It contains `output` when the request had `wait_ms`. */
export const ExecStarted = Type.Object(
  {
    ...Exec.properties,
    output: Type.Optional(
      Type.Object(
        { stdout: ExecOutput, stderr: ExecOutput },
        {
          description:
            'The first page of each stream, up to 64 KiB. Present when wait_ms was given, unless output_expired is true.',
        },
      ),
    ),
  },
  { title: 'ExecStarted' },
);
export type ExecStarted = Static<typeof ExecStarted>;
