// `sandbar volumes`: list them, or get or delete one. So far a volume is the disk that a destroyed machine left.
import type { Volume } from '@sandbar/contract/volume.ts';
import { type Command, connect, printJson, readArguments } from '../command.ts';
import { formatTable } from '../table.ts';
import { UsageError } from '../usage-error.ts';

const HELP = `Usage: sandbar volumes list [--json]
       sandbar volumes get|delete VOLUME... [--json]

sandbar machines destroy --keep-disk makes a volume of a machine's disk. A deleted volume's data is gone for good.`;

async function runVolumes(args: readonly string[]): Promise<number> {
  const { values, positionals } = readArguments(args, { json: { type: 'boolean', default: false } });
  const [name = 'list', ...ids] = positionals;
  const { volumes } = connect();
  if (name === 'list') {
    if (ids.length > 0) throw new UsageError('sandbar volumes list takes no arguments');
    const found = await volumes.list();
    if (values.json) printJson(found);
    else printVolumes(found);
    return 0;
  }
  if (name !== 'get' && name !== 'delete') throw new UsageError(`there is no "volumes ${name}": list, get, delete`);
  if (ids.length === 0) throw new UsageError(`which volume? sandbar volumes ${name} VOLUME`);
  if (name === 'delete') {
    for (const id of ids) {
      await volumes.delete(id);
      if (!values.json) console.log(`${id}: deleted`);
    }
    if (values.json) printJson(ids.map((id) => ({ id })));
    return 0;
  }
  const found: Volume[] = [];
  for (const id of ids) found.push(await volumes.get(id));
  if (values.json) printJson(found.length === 1 ? found[0] : found);
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
    volume.created_at,
  ]);
  console.log(formatTable(['ID', 'NAME', 'KIND', 'SIZE GB', 'STATE', 'MACHINE', 'CREATED'], rows));
  for (const { id, error } of found) if (error !== null) console.log(`${id}: ${error}`);
}

export const volumes: Command = {
  name: 'volumes',
  summary: 'lists kept disks; get, delete: sandbar volumes delete VOLUME',
  help: HELP,
  run: runVolumes,
};
