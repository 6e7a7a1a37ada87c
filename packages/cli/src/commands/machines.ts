// `sandbar machines`: list them, and get, stop, start or destroy one.
import type { Machine } from '@sandbar/contract/machine.ts';
import { type Command, connect, printJson, readArguments } from '../command.ts';
import { formatTable } from '../table.ts';
import { UsageError } from '../usage-error.ts';

const HELP = `Usage: sandbar machines list [--json]
       sandbar machines get|stop|start|destroy MACHINE... [--keep-disk] [--delete-snapshots] [--json]

Stop keeps the disk; destroy does not, unless --keep-disk makes it a detached volume. A machine that has snapshots is
destroyed with --delete-snapshots only.`;

const ACTIONS = ['get', 'stop', 'start', 'destroy'] as const;

async function runMachines(args: readonly string[]): Promise<number> {
  const { values, positionals } = readArguments(args, {
    json: { type: 'boolean', default: false },
    'keep-disk': { type: 'boolean' },
    'delete-snapshots': { type: 'boolean' },
  });
  const [name = 'list', ...ids] = positionals;
  const { machines } = connect();
  if (name === 'list') {
    const found = await machines.list();
    if (values.json) printJson(found);
    else printMachines(found);
    return 0;
  }
  const action = ACTIONS.find((candidate) => candidate === name);
  if (action === undefined) throw new UsageError(`there is no "machines ${name}": list, ${ACTIONS.join(', ')}`);
  if (ids.length === 0) throw new UsageError(`which machine? sandbar machines ${action} MACHINE`);
  const { 'keep-disk': preserveStorage, 'delete-snapshots': deleteSnapshots } = values;
  const ofDestroy = preserveStorage ? '--keep-disk' : deleteSnapshots ? '--delete-snapshots' : undefined;
  if (ofDestroy && action !== 'destroy') throw new UsageError(`${ofDestroy} goes with destroy, not with ${action}`);
  const changed: Machine[] = [];
  for (const id of ids) changed.push(await machines[action](id, { preserveStorage, deleteSnapshots }));
  if (values.json) printJson(changed.length === 1 ? changed[0] : changed);
  else printMachines(changed);
  return 0;
}

function printMachines(found: readonly Machine[]): void {
  if (found.length === 0) {
    console.log('No machines.');
    return;
  }
  const rows = found.map((machine) => [
    machine.id,
    machine.name || '-',
    machine.state,
    `${machine.vcpus}`,
    `${machine.memory_mb}`,
    `${machine.rootfs_size_gb}`,
    machine.private_ip ?? '-',
    machine.created_at,
  ]);
  console.log(formatTable(['ID', 'NAME', 'STATE', 'VCPUS', 'MEMORY MB', 'DISK GB', 'IP', 'CREATED'], rows));
  for (const { id, error, root_volume_id, state } of found) {
    if (error !== null) console.log(`${id}: ${error}`);
    if (state === 'destroyed' && root_volume_id !== null)
      console.log(`${id}: its disk is kept as volume ${root_volume_id}`);
  }
}

export const machines: Command = {
  name: 'machines',
  summary: 'lists machines; get, stop, start, destroy: sandbar machines stop MACHINE',
  help: HELP,
  run: runMachines,
};
