// The tools that take, list and restore snapshots.
import type { Snapshot } from '@sandbar/contract/snapshot.ts';
import { SNAPSHOT_NAME_LENGTH } from '@sandbar/contract/snapshot.ts';
import { z } from 'zod';
import { machineId, snapshotId } from './fields.ts';
import { MachineState, stateResult } from './machine-record.ts';
import { ADDS, DESTROYS, defineTool, READS, type RegisterTool } from './tool.ts';

const LIST_LIMIT = 100;

const SnapshotRecord = z.object({
  snapshot_id: z.string(),
  machine_id: z.string(),
  name: z.string(),
  kind: z.string(),
  state: z.string(),
  size_gb: z.number(),
  created_at: z.string(),
});

function toSnapshotRecord(snapshot: Snapshot): z.infer<typeof SnapshotRecord> {
  const { id, machine_id, name, kind, state, size_gb, created_at } = snapshot;
  return { snapshot_id: id, machine_id, name, kind, state, size_gb, created_at };
}

function snapshotLine({ id, machine_id, name, kind, state, created_at }: Snapshot): string {
  const label = name === '' ? '' : ` ${JSON.stringify(name)}`;
  return `${id}${label}: ${kind} snapshot of machine ${machine_id}, ${state}, taken ${created_at}`;
}

const snapshotCreate = defineTool({
  name: 'snapshot_create',
  title: 'Take a snapshot',
  description:
    'Keeps the disk of a machine as it is now, and with memory its running programs, too. Take one before a risky step; ' +
    'go back with snapshot_restore, or make new machines from it with machine_create.',
  input: z.strictObject({
    machine_id: machineId,
    name: z.string().max(SNAPSHOT_NAME_LENGTH).optional().describe('A label; need not be unique.'),
    memory: z.boolean().default(false).describe('Keep memory and programs; of a running machine only.'),
  }),
  output: SnapshotRecord,
  annotations: ADDS,
  run: async ({ machine_id, name, memory }, { client, signal }) => {
    const spec = { ...(name === undefined ? {} : { name }), memory };
    const snapshot = await client.snapshots.create(machine_id, spec, { signal });
    return { data: toSnapshotRecord(snapshot), text: snapshotLine(snapshot) };
  },
});

const snapshotList = defineTool({
  name: 'snapshot_list',
  title: 'List snapshots',
  description: `Lists the snapshots of a machine, or of the whole account, newest first, at most ${LIST_LIMIT}.`,
  input: z.strictObject({ machine_id: machineId.optional().describe('Only those of this machine.') }),
  output: z.object({ snapshots: z.array(SnapshotRecord), total: z.number() }),
  annotations: READS,
  run: async ({ machine_id: machineId }, { client, signal }) => {
    const snapshots = await client.snapshots.list(machineId === undefined ? {} : { machineId }, { signal });
    const shown = snapshots.slice(0, LIST_LIMIT);
    const rest = snapshots.length - shown.length;
    const lines = [...shown.map(snapshotLine), ...(rest > 0 ? [`… and ${rest} more`] : [])];
    return {
      data: { snapshots: shown.map(toSnapshotRecord), total: snapshots.length },
      text: lines.length === 0 ? 'There are no snapshots.' : lines.join('\n'),
    };
  },
});

const snapshotRestore = defineTool({
  name: 'snapshot_restore',
  title: 'Restore a snapshot',
  description:
    'Sets the disk of the machine that the snapshot was taken of back to it. Everything written since is lost. A running ' +
    'machine reboots.',
  input: z.strictObject({ snapshot_id: snapshotId }),
  output: MachineState,
  annotations: DESTROYS,
  run: async ({ snapshot_id }, { client, signal }) => {
    const { data, text } = stateResult(await client.snapshots.restore(snapshot_id, { signal }));
    return { data, text: `Restored. ${text}` };
  },
});

export const SNAPSHOT_TOOLS: RegisterTool[] = [snapshotCreate, snapshotList, snapshotRestore];
