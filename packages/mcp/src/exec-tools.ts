// The tools that run commands in a machine, read their output and end them.
import type { Exec, ExecCreate } from '@sandbar/contract/exec.ts';
import { OUTPUT_STREAMS } from '@sandbar/contract/exec.ts';
import { EXEC_BOUNDS } from '@sandbar/contract/exec-bounds.ts';
import { JOB_STATUSES } from '@sandbar/contract/exec-states.ts';
import { exitCodeOf } from '@sandbar/sdk/exec-result.ts';
import { execCreateOf } from '@sandbar/sdk/sandbox-options.ts';
import { z } from 'zod';
import { ExecRecord, execText, toExecRecord } from './exec-record.ts';
import { absolutePath, environment, jobId, machineId, maxBytes, offset } from './fields.ts';
import { readOnHint, toOutputPart } from './output-part.ts';
import { runToEnd } from './run-to-end.ts';
import { DESTROYS, defineTool, READS, type RegisterTool, RUNS } from './tool.ts';

/** The time limit of a command whose end the call waits for, seconds. Most clients give up before the maximum. */
const WAITED_SEC_DEFAULT = 120;
const WAITED_SEC_MAX = 3600;

/** How long exec_cancel waits for the end of the job, ms. */
const CANCEL_WAIT_MS = 10_000;

/** The arguments that say what to run, and where. */
const commandFields = {
  command: z.string().min(1).max(100_000).describe('Run by /bin/sh -c.'),
  cwd: absolutePath.optional().describe('Default: the home directory.'),
  env: environment.optional(),
  user: z.string().optional().describe('Default: that of the image, mostly root.'),
  stdin: z.string().max(300_000).optional().describe('Standard input.'),
};

/** The arguments of `exec` and `machine_run`, which wait for the end of the command. */
export const waitedCommand = {
  ...commandFields,
  timeout_sec: z
    .int()
    .min(1)
    .max(WAITED_SEC_MAX)
    .default(WAITED_SEC_DEFAULT)
    .describe('Seconds after which the command is killed.'),
  max_bytes: maxBytes,
};

type Command = { command: string } & {
  [K in 'cwd' | 'user' | 'stdin']?: string | undefined;
} & { env?: Record<string, string> | undefined; timeout_sec: number };

/** Turns the arguments of a tool into the request of the API. */
export function execCreate({ command, cwd, env, user, stdin, timeout_sec: timeoutSec }: Command): ExecCreate {
  return execCreateOf(command, { cwd, env, user, stdin, timeoutSec });
}

const JobRecord = z.object({
  job_id: z.string(),
  status: z.enum(JOB_STATUSES),
  exit_code: z.number().nullable().describe('Null while it runs.'),
  stdout_bytes: z.number(),
  stderr_bytes: z.number(),
});

function toJobRecord(job: Exec): z.infer<typeof JobRecord> {
  const { id, status, stdout_bytes, stderr_bytes } = job;
  const exit_code = status === 'running' || status === 'lost' ? null : exitCodeOf(job);
  return { job_id: id, status, exit_code, stdout_bytes, stderr_bytes };
}

function jobLine(job: Exec): string {
  const { job_id, status, exit_code, stdout_bytes, stderr_bytes } = toJobRecord(job);
  const code = exit_code === null ? '' : `, exit code ${exit_code}`;
  return `job ${job_id}: ${status}${code}, ${stdout_bytes} bytes of stdout, ${stderr_bytes} of stderr`;
}

const exec = defineTool({
  name: 'exec',
  title: 'Run a command',
  description:
    'Runs a shell command in a running machine, waits for its end and returns exit code and output. A failed command is ' +
    'a normal result: look at exit_code. For servers and for commands of more than a minute use exec_start, because ' +
    'many clients stop waiting. A cancelled call kills the command.',
  input: z.strictObject({ machine_id: machineId, ...waitedCommand }),
  output: ExecRecord,
  annotations: RUNS,
  run: async (args, call) => {
    const ended = await runToEnd(call, args.machine_id, execCreate(args), args.max_bytes);
    return { data: toExecRecord(ended), text: execText(ended) };
  },
});

const execStart = defineTool({
  name: 'exec_start',
  title: 'Start a command',
  description:
    'Starts a shell command in the background and returns its job_id at once. Use it for servers and long work. ' +
    `Read its output with exec_output, end it with exec_cancel. At most ${EXEC_BOUNDS.concurrentJobs} jobs run in a machine at a time.`,
  input: z.strictObject({
    machine_id: machineId,
    ...commandFields,
    timeout_sec: z
      .int()
      .min(1)
      .max(EXEC_BOUNDS.timeoutSecMax)
      .default(EXEC_BOUNDS.timeoutSecDefault)
      .describe('Seconds after which the command is killed.'),
  }),
  output: JobRecord,
  annotations: RUNS,
  run: async (args, { client, signal }) => {
    // Do not pass the signal to the start: the caller of a cancelled call never learns the id, so cancel the job here.
    const job = await client.execs.start(args.machine_id, execCreate(args));
    if (signal.aborted) await client.execs.cancel(args.machine_id, job.id);
    return { data: toJobRecord(job), text: jobLine(job) };
  },
});

const execOutput = defineTool({
  name: 'exec_output',
  title: 'Read output of a command',
  description:
    'Returns output of a job from offset on, and its status. Works while the job runs and after its end. With wait_sec it ' +
    'waits until there is more output or the job has ended. Read on from next_offset until it is null.',
  input: z.strictObject({
    machine_id: machineId,
    job_id: jobId,
    stream: z.enum(OUTPUT_STREAMS).default('stdout'),
    offset,
    max_bytes: maxBytes,
    wait_sec: z.int().min(0).max(50).default(0).describe('Seconds to wait for news.'),
  }),
  output: JobRecord.extend({
    text: z.string().describe('Bytes that are not UTF-8 are U+FFFD.'),
    offset: z.number(),
    next_offset: z.number().nullable().describe('Where to read on; null: the job has ended and this is the end.'),
  }),
  annotations: READS,
  run: async ({ machine_id, job_id, stream, offset, max_bytes, wait_sec }, { client, signal }) => {
    const query = { stream, offset, limit: max_bytes, wait_ms: wait_sec * 1000 };
    const part = toOutputPart(await client.execs.output(machine_id, job_id, query, { signal }), max_bytes);
    const job = await client.execs.get(machine_id, job_id, { signal });
    const hint = readOnHint(part, { machineId: machine_id, jobId: job_id, stream });
    return {
      data: { ...toJobRecord(job), text: part.text, offset: part.offset, next_offset: part.nextOffset },
      text: [jobLine(job), part.text.replace(/\n$/, ''), hint].filter((line) => line !== '').join('\n'),
    };
  },
});

const execCancel = defineTool({
  name: 'exec_cancel',
  title: 'Cancel a command',
  description: 'Kills all processes of a job. A job that has ended already is returned as it is.',
  input: z.strictObject({ machine_id: machineId, job_id: jobId }),
  output: JobRecord,
  annotations: DESTROYS,
  run: async ({ machine_id, job_id }, { client, signal }) => {
    const cancelled = await client.execs.cancel(machine_id, job_id, { signal });
    // The service answers a cancel before the processes have ended, so wait for their end.
    const isRunning = cancelled.status === 'running';
    const job = isRunning ? await client.execs.get(machine_id, job_id, { waitMs: CANCEL_WAIT_MS, signal }) : cancelled;
    return { data: toJobRecord(job), text: jobLine(job) };
  },
});

export const EXEC_TOOLS: RegisterTool[] = [exec, execStart, execOutput, execCancel];
