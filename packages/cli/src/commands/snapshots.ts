// `sandbar snapshots`: take and list them, and get, restore or delete some.
import type { Snapshot } from '@sandbar/contract/snapshot.ts';
import type { Sandbar } from '@sandbar/sdk/client.ts';
import { type Command, connect, onlyGiven, printJson, readArguments } from '../command.ts';
import { formatTable } from '../table.ts';
import { UsageError } from '../usage-error.ts';

const HELP = `Usage: sandbar snapshots list [MACHINE] [--json]
       sandbar snapshots create MACHINE [--name NAME] [--memory] [--json]
       sandbar snapshots restore SNAPSHOT [--json]
       sandbar snapshots get|delete SNAPSHOT... [--json]

A snapshot keeps the disk of a running or stopped machine; with --memory, the processes of a running one as well.
restore brings its machine's disk back: what was written since is gone, and a running machine reboots.
sandbar run --snapshot SNAPSHOT makes a machine from one, which lives on when the snapshot is deleted.`;

type Call = {
  sandbar: Sandbar;
  positionals: readonly string[];
  options: { name?: string; memory?: boolean };
  json: boolean;
};
type Action = { takes: readonly ('name' | 'memory')[]; run: (call: Call) => Promise<void> };

const ACTIONS: Record<string, Action> = {
  list: {
    takes: [],
    run: async ({ sandbar, positionals, json }) => {
      const [machineId, ...more] = positionals;
      if (more.length > 0) throw new UsageError('sandbar snapshots list takes one machine at most');
      print(await sandbar.snapshots.list(onlyGiven({ machineId })), json);
    },
  },
  create: {
    takes: ['name', 'memory'],
    run: async ({ sandbar, positionals, options, json }) => {
      const machineId = onlyOne(positionals, 'which machine? sandbar snapshots create MACHINE');
      const snapshot = await sandbar.snapshots.create(machineId, onlyGiven(options));
      if (json) printJson(snapshot);
      else printSnapshots([snapshot]);
    },
  },
  restore: {
    takes: [],
    run: async ({ sandbar, positionals, json }) => {
      const id = onlyOne(positionals, 'which snapshot? sandbar snapshots restore SNAPSHOT');
      const machine = await sandbar.snapshots.restore(id);
      if (json) printJson(machine);
      else console.log(`machine ${machine.id}: restored, ${machine.state}`);
    },
  },
  get: {
    takes: [],
    run: async ({ sandbar, positionals, json }) => {
      const found: Snapshot[] = [];
      for (const id of someOf(positionals, 'get')) found.push(await sandbar.snapshots.get(id));
      if (json && found.length === 1) printJson(found[0]);
      else print(found, json);
    },
  },
  delete: {
    takes: [],
    run: async ({ sandbar, positionals, json }) => {
      for (const id of someOf(positionals, 'delete')) {
        await sandbar.snapshots.delete(id);
        // At once: a later one may be refused.
        if (!json) console.log(`${id}: deleted`);
      }
      if (json) printJson(positionals.map((id) => ({ id })));
    },
  },
};

function onlyOne(positionals: readonly string[], question: string): string {
  const [first, ...more] = positionals;
  if (first === undefined || more.length > 0) throw new UsageError(question);
  return first;
}

function someOf(ids: readonly string[], name: string): readonly string[] {
  if (ids.length === 0) throw new UsageError(`which snapshot? sandbar snapshots ${name} SNAPSHOT`);
  return ids;
}

async function runSnapshots(args: readonly string[]): Promise<number> {
  const { values, positionals } = readArguments(args, {
    json: { type: 'boolean', default: false },
    name: { type: 'string' },
    memory: { type: 'boolean' },
  });
  const { json, ...options } = values;
  const [name = 'list', ...rest] = positionals;
  const action = Object.hasOwn(ACTIONS, name) ? ACTIONS[name] : undefined;
  if (!action) throw new UsageError(`there is no "snapshots ${name}": ${Object.keys(ACTIONS).join(', ')}`);
  const given = Object.keys(options) as (keyof typeof options)[];
  const strange = given.find((option) => !action.takes.includes(option));
  if (strange) throw new UsageError(`--${strange} does not go with ${name}`);
  await action.run({ sandbar: connect(), positionals: rest, options, json });
  return 0;
}

function print(found: readonly Snapshot[], json: boolean): void {
  if (json) printJson(found);
  else printSnapshots(found);
}

function printSnapshots(found: readonly Snapshot[]): void {
  if (found.length === 0) {
    console.log('No snapshots.');
    return;
  }
  const rows = found.map((snapshot) => [
    snapshot.id,
    snapshot.name || '-',
    snapshot.kind,
    `${snapshot.size_gb}`,
    `${Math.ceil(snapshot.stored_bytes / 2 ** 20)}`,
    snapshot.state,
    snapshot.machine_id,
    snapshot.created_at,
  ]);
  console.log(formatTable(['ID', 'NAME', 'KIND', 'SIZE GB', 'KEPT MB', 'STATE', 'MACHINE', 'CREATED'], rows));
  for (const { id, error } of found) if (error !== null) console.log(`${id}: ${error}`);
}

export const snapshots: Command = {
  name: 'snapshots',
  summary: 'takes, lists, restores and deletes snapshots: sandbar snapshots create MACHINE',
  help: HELP,
  run: runSnapshots,
};
