// The tools that create, find, start, stop and delete machines.
import { EXPIRY_ACTIONS, MACHINE_BOUNDS, MACHINE_DEFAULTS, MACHINE_STATES } from '@sandbar/contract/machine-states.ts';
import type { Client } from '@sandbar/sdk/client.ts';
import { machineCreateOf } from '@sandbar/sdk/sandbox-options.ts';
import { NotFoundError } from '@sandbar/sdk/service-errors.ts';
import { z } from 'zod';
import { environment, machineId, snapshotId } from './fields.ts';
import {
  MachineRecord,
  MachineState,
  machineLine,
  machineResult,
  stateResult,
  toMachineRecord,
} from './machine-record.ts';
import { ADDS, DESTROYS, defineTool, READS, type RegisterTool, SETS } from './tool.ts';

/** The arguments for the size, image and environment of a new machine. `machine_run` has them too. */
export const machineSpec = {
  stack: z.string().optional().describe('Image, such as base, python or node. Default: base.'),
  vcpus: z.int().min(1).max(MACHINE_BOUNDS.vcpusMax).optional().describe(`Default: ${MACHINE_DEFAULTS.vcpus}.`),
  memory_mb: z
    .int()
    .min(MACHINE_BOUNDS.memoryMbMin)
    .max(MACHINE_BOUNDS.memoryMbMax)
    .optional()
    .describe(`MiB. Default: ${MACHINE_DEFAULTS.memory_mb}.`),
  env: environment.optional(),
};

export const expiresInSec = z.int().min(MACHINE_BOUNDS.expirySecMin).max(MACHINE_BOUNDS.expirySecMax);

const LIST_LIMIT = 100;

const machineCreate = defineTool({
  name: 'machine_create',
  title: 'Create a machine',
  description:
    'Creates an isolated Linux machine and returns when it runs. Use it for work of several steps: then call exec, ' +
    'file_write and so on with its machine_id, and machine_delete at the end. For a single command use machine_run. ' +
    'Give expires_in_sec, so that a forgotten machine is removed.',
  input: z.strictObject({
    name: z.string().max(MACHINE_BOUNDS.nameLength).optional().describe('A label; need not be unique.'),
    ...machineSpec,
    rootfs_size_gb: z.int().min(1).max(MACHINE_BOUNDS.rootfsGbMax).optional().describe('Disk, GiB. Default: 10.'),
    snapshot_id: snapshotId.optional().describe('Make the machine from this snapshot; leave out stack.'),
    expires_in_sec: expiresInSec.optional().describe('Seconds until on_expiry happens. Default: never.'),
    on_expiry: z.enum(EXPIRY_ACTIONS).default('destroy'),
  }),
  output: MachineRecord,
  annotations: ADDS,
  run: async (args, { client, signal }) => {
    const { name, stack, vcpus, memory_mb: memoryMb, env, rootfs_size_gb: rootfsSizeGb } = args;
    const { snapshot_id: snapshotId, expires_in_sec: expiresInSec, on_expiry: onExpiry } = args;
    const options = { name, stack, vcpus, memoryMb, env, rootfsSizeGb, snapshotId, expiresInSec, onExpiry };
    // Do not pass the signal to the create: an aborted create might leave a machine whose id nobody knows. If the call
    // was cancelled meanwhile, its caller never learns the id either, so destroy the machine here.
    const machine = await client.machines.create(machineCreateOf(options));
    if (signal.aborted) await client.machines.destroy(machine.id);
    return machineResult(machine);
  },
});

const machineList = defineTool({
  name: 'machine_list',
  title: 'List machines',
  description: `Lists the machines of the account, newest first, at most ${LIST_LIMIT}. Destroyed ones only with state "destroyed".`,
  input: z.strictObject({
    state: z.enum(MACHINE_STATES).optional(),
    name: z.string().max(MACHINE_BOUNDS.nameLength).optional().describe('Exact name.'),
  }),
  output: z.object({ machines: z.array(MachineRecord), total: z.number() }),
  annotations: READS,
  run: async ({ state, name }, { client, signal }) => {
    const machines = await client.machines.list({ state, name }, { signal });
    const shown = machines.slice(0, LIST_LIMIT);
    const rest = machines.length - shown.length;
    const lines = [...shown.map(machineLine), ...(rest > 0 ? [`… and ${rest} more`] : [])];
    return {
      data: { machines: shown.map(toMachineRecord), total: machines.length },
      text: lines.length === 0 ? 'There are no such machines.' : lines.join('\n'),
    };
  },
});

const machineGet = defineTool({
  name: 'machine_get',
  title: 'Show a machine',
  description: 'Returns the present state, size and expiry of a machine.',
  input: z.strictObject({ machine_id: machineId }),
  output: MachineRecord,
  annotations: READS,
  run: async ({ machine_id }, { client, signal }) => machineResult(await client.machines.get(machine_id, { signal })),
});

const machineStart = defineTool({
  name: 'machine_start',
  title: 'Start a machine',
  description: 'Starts a stopped machine and returns when it runs. Its disk is as it was; its programs start anew.',
  input: z.strictObject({ machine_id: machineId }),
  output: MachineState,
  annotations: SETS,
  run: async ({ machine_id }, { client, signal }) => stateResult(await client.machines.start(machine_id, { signal })),
});

const machineStop = defineTool({
  name: 'machine_stop',
  title: 'Stop a machine',
  description: 'Shuts a machine down and keeps its disk. Its running jobs end. machine_start starts it again.',
  input: z.strictObject({ machine_id: machineId }),
  output: MachineState,
  annotations: SETS,
  run: async ({ machine_id }, { client, signal }) => stateResult(await client.machines.stop(machine_id, { signal })),
});

const machineDelete = defineTool({
  name: 'machine_delete',
  title: 'Delete a machine',
  description: 'Destroys a machine and its disk for good. A machine that is destroyed already is no error.',
  input: z.strictObject({
    machine_id: machineId,
    delete_snapshots: z
      .boolean()
      .default(false)
      .describe('Also delete its snapshots. A machine that has some is otherwise refused with conflict.'),
  }),
  output: z.object({ machine_id: z.string(), state: z.literal('destroyed') }),
  annotations: DESTROYS,
  run: async ({ machine_id, delete_snapshots: deleteSnapshots }, { client, signal }) => {
    await destroyMachine(client, machine_id, { deleteSnapshots, signal });
    return { data: { machine_id, state: 'destroyed' as const }, text: `The machine ${machine_id} is destroyed.` };
  },
});

/** Destroys a machine. Succeeds when the machine is destroyed already, and throws when it never existed. */
async function destroyMachine(
  client: Client,
  id: string,
  options: { deleteSnapshots: boolean; signal: AbortSignal },
): Promise<void> {
  try {
    await client.machines.destroy(id, options);
  } catch (error) {
    if (!(error instanceof NotFoundError)) throw error;
    const { state } = await client.machines.get(id, { signal: options.signal });
    if (state !== 'destroyed') throw error;
  }
}

export const MACHINE_TOOLS: RegisterTool[] = [
  machineCreate,
  machineList,
  machineGet,
  machineStart,
  machineStop,
  machineDelete,
];
