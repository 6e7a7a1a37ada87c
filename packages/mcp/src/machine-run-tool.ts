// The tool `machine_run`, which creates a machine, runs one command in it and, without `keep`, destroys it.
import type { Machine } from '@sandbar/contract/machine.ts';
import type { Client } from '@sandbar/sdk/client.ts';
import { machineCreateOf } from '@sandbar/sdk/sandbox-options.ts';
import { z } from 'zod';
import { execFields, execText, toExecRecord } from './exec-record.ts';
import { execCreate, waitedCommand } from './exec-tools.ts';
import { expiresInSec, machineSpec } from './machine-tools.ts';
import { readOnHint } from './output-part.ts';
import { type EndedJob, runToEnd } from './run-to-end.ts';
import { ADDS, defineTool } from './tool.ts';
import { ToolError } from './tool-errors.ts';

const EXPIRES_SEC_DEFAULT = 600;
/** How much longer than its command a machine may live, seconds. It needs this time to start and to end. */
const SPARE_SEC = 60;

export const machineRun = defineTool({
  name: 'machine_run',
  title: 'Run a command in a new machine',
  description:
    'Creates an isolated Linux machine, runs one shell command in it, returns exit code and output, and destroys the ' +
    'machine. Use it for untrusted code and single commands. With keep the machine stays for exec and so on.',
  input: z.strictObject({
    ...waitedCommand,
    ...machineSpec,
    keep: z.boolean().default(false).describe('Keep the machine until it expires.'),
    expires_in_sec: expiresInSec
      .optional()
      .describe(
        `Seconds until the machine is destroyed in any case. Default: ${EXPIRES_SEC_DEFAULT}, at least timeout_sec + ${SPARE_SEC}.`,
      ),
  }),
  output: z.object({
    ...execFields,
    machine_id: z.string(),
    machine_kept: z.boolean(),
    machine_expires_at: z.string().nullable(),
  }),
  annotations: { ...ADDS, openWorldHint: true },
  run: async (args, call) => {
    const { client, signal } = call;
    const { stack, vcpus, memory_mb: memoryMb, keep, timeout_sec } = args;
    const expiresInSec = args.expires_in_sec ?? Math.max(EXPIRES_SEC_DEFAULT, timeout_sec + SPARE_SEC);
    // Do not pass the signal to the create, because the caller of a cancelled call never learns the id of the machine.
    // Wait for the machine instead, and destroy it below.
    const spec = machineCreateOf({ stack, vcpus, memoryMb, expiresInSec, onExpiry: 'destroy' });
    const machine = await client.machines.create(spec);
    let ended: EndedJob;
    let isKept = true;
    try {
      ended = await runToEnd(call, machine.id, execCreate(args), args.max_bytes);
      if (!keep || signal.aborted) isKept = !(await isDestroyed(client, machine));
    } catch (error) {
      const isGone = await isDestroyed(client, machine);
      throw error instanceof ToolError ? new ToolError(error.code, error.message, adviceAfter(machine, isGone)) : error;
    }
    const { id: machine_id, expires_at: machine_expires_at } = machine;
    const machineText = isKept ? `[The machine ${machine_id} runs until ${machine_expires_at}.]` : '';
    const text = [execText(ended, isKept ? readOnHint : lostHint), machineText]
      .filter((part) => part !== '')
      .join('\n');
    return { data: { ...toExecRecord(ended), machine_id, machine_kept: isKept, machine_expires_at }, text };
  },
});

/** Destroys the machine. If that fails, returns false; the service then destroys the machine when it expires. */
function isDestroyed(client: Client, { id }: Machine): Promise<boolean> {
  return client.machines.destroy(id).then(
    () => true,
    () => false,
  );
}

/** Says what to do after a broken connection. It does not suggest exec_output, because the machine does not stay. */
function adviceAfter({ id, expires_at }: Machine, isGone: boolean): string {
  const state = isGone
    ? 'The machine is destroyed with the output.'
    : `The machine ${id} could not be destroyed and exists until ${expires_at}: end it with machine_delete.`;
  return `The command may have run. ${state} Run it again if it may run twice.`;
}

/** The hint for output that is cut when the machine is destroyed, so that the rest cannot be read. */
const lostHint: typeof readOnHint = ({ nextOffset, totalBytes }, { stream }) =>
  nextOffset === null
    ? ''
    : `[${stream} is cut at byte ${nextOffset} of ${totalBytes}, and the machine is destroyed. Run it again with a larger max_bytes, or with keep and exec_output.]`;
