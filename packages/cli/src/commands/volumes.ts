// `sandbar volumes`: make and list them, attach and detach one, or get and delete several.
import type { Volume } from '@sandbar/contract/volume.ts';
import type { Sandbar } from '@sandbar/sdk/client.ts';
import { type Command, connect, onlyGiven, printJson, readArguments, readInteger, readRequired } from '../command.ts';
import { formatTable } from '../table.ts';
import { UsageError } from '../usage-error.ts';

const HELP = `Usage: sandbar volumes list [--json]
       sandbar volumes create --size GB [--name NAME] [--json]
       sandbar volumes attach VOLUME MACHINE [--path PATH] [--json]
       sandbar volumes detach|get|delete VOLUME... [--json]

A volume is mounted at PATH, by default /mnt/VOLUME, in a machine of its host that runs or is started.
sandbar machines destroy --keep-disk makes a volume of a machine's disk. A deleted volume's data is gone for good.`;

type Call = {
  volumes: Sandbar['volumes'];
  positionals: readonly string[];
  /** What was given of `--size`, `--name` and `--path`. */
  options: { size?: string; name?: string; path?: string };
  json: boolean;
};
/** Resolves with the volumes to print; one that prints by itself with nothing. */
type Action = { takes: readonly ('size' | 'name' | 'path')[]; run: (call: Call) => Promise<Volume[] | undefined> };

const ACTIONS: Record<string, Action> = {
  list: {
    takes: [],
    run: async ({ volumes, positionals }) => {
      if (positionals.length > 0) throw new UsageError('sandbar volumes list takes no arguments');
      return volumes.list();
    },
  },
  create: {
    takes: ['size', 'name'],
    run: async ({ volumes, positionals, options: { size, name } }) => {
      if (positionals.length > 0) throw new UsageError('sandbar volumes create takes options only');
      const sizeGb = readInteger('--size', readRequired('--size', size)) ?? 0;
      return [await volumes.create({ size_gb: sizeGb, ...onlyGiven({ name }) })];
    },
  },
  attach: {
    takes: ['path'],
    run: async ({ volumes, positionals, options: { path } }) => {
      const [id, machineId, ...more] = positionals;
      if (id === undefined || machineId === undefined || more.length > 0) {
        throw new UsageError('which volume, to which machine? sandbar volumes attach VOLUME MACHINE');
      }
      return [await volumes.attach(id, { machine_id: machineId, ...onlyGiven({ mount_path: path }) })];
    },
  },
  detach: {
    takes: [],
    run: async ({ volumes, positionals }) => {
      const detached: Volume[] = [];
      for (const id of someOf(positionals, 'detach')) detached.push(await volumes.detach(id));
      return detached;
    },
  },
  get: {
    takes: [],
    run: async ({ volumes, positionals }) => {
      const found: Volume[] = [];
      for (const id of someOf(positionals, 'get')) found.push(await volumes.get(id));
      return found;
    },
  },
  delete: {
    takes: [],
    run: async ({ volumes, positionals, json }) => {
      for (const id of someOf(positionals, 'delete')) {
        await volumes.delete(id);
        // At once: a later one may be refused.
        if (!json) console.log(`${id}: deleted`);
      }
      if (json) printJson(positionals.map((id) => ({ id })));
      return undefined;
    },
  },
};

function someOf(ids: readonly string[], name: string): readonly string[] {
  if (ids.length === 0) throw new UsageError(`which volume? sandbar volumes ${name} VOLUME`);
  return ids;
}

async function runVolumes(args: readonly string[]): Promise<number> {
  const { values, positionals } = readArguments(args, {
    json: { type: 'boolean', default: false },
    size: { type: 'string' },
    name: { type: 'string' },
    path: { type: 'string' },
  });
  const { json, ...options } = values;
  const [name = 'list', ...rest] = positionals;
  const action = Object.hasOwn(ACTIONS, name) ? ACTIONS[name] : undefined;
  if (!action) throw new UsageError(`there is no "volumes ${name}": ${Object.keys(ACTIONS).join(', ')}`);
  const given = Object.keys(options) as (keyof typeof options)[];
  const strange = given.find((option) => !action.takes.includes(option));
  if (strange) throw new UsageError(`--${strange} does not go with volumes ${name}`);
  const found = await action.run({ volumes: connect().volumes, positionals: rest, options, json });
  if (found === undefined) return 0;
  if (json) printJson(found.length === 1 && name !== 'list' ? found[0] : found);
  else printVolumes(found);
  return 0;
}

function printVolumes(found: readonly Volume[]): void {
  if (found.length === 0) {
    console.log('No volumes.');
    return;
  }
  const rows = found.map((volume) => [
    volume.id,
    volume.name || '-',
    volume.kind,
    `${volume.size_gb}`,
    volume.state,
    volume.machine_id ?? '-',
    volume.mount_path ?? '-',
    volume.created_at,
  ]);
  console.log(formatTable(['ID', 'NAME', 'KIND', 'SIZE GB', 'STATE', 'MACHINE', 'MOUNTED AT', 'CREATED'], rows));
  for (const { id, error } of found) if (error !== null) console.log(`${id}: ${error}`);
}

export const volumes: Command = {
  name: 'volumes',
  summary: 'lists volumes; create, attach, detach, get, delete: sandbar volumes create --size GB',
  help: HELP,
  run: runVolumes,
};
