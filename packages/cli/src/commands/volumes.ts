// `sandbar volumes`: lists, creates, attaches, detaches, shows and deletes volumes.
import type { Command } from '@commander-js/extra-typings';
import type { Volume } from '@sandbar/contract/volume.ts';
import { collectIds, onlyGiven, parseId, parseInteger } from '../arguments.ts';
import { connect } from '../connect.ts';
import { printJson, printLine, printTable } from '../print.ts';

export function defineVolumes(command: Command): void {
  command.addHelpText(
    'after',
    `
A volume is mounted at PATH, by default /mnt/VOLUME, in a machine of its host that runs or is started.
sandbar machines destroy --keep-disk makes a volume of a machine's disk. A deleted volume's data is gone for good.`,
  );
  command
    .command('list')
    .description('lists all volumes (the default)')
    .option('--json', 'print the answer of the API')
    .action(async ({ json }) => {
      const volumes = await connect().volumes.list();
      if (json) printJson({ volumes });
      else printVolumes(volumes);
    });
  command
    .command('create')
    .description('creates an empty volume')
    .requiredOption('--size <gb>', 'its size, GiB', parseInteger)
    .option('--name <name>', 'a label for the volume')
    .option('--json', 'print the answer of the API')
    .action(async ({ size, name, json }) => {
      printChanged([await connect().volumes.create({ size_gb: size, ...onlyGiven({ name }) })], json);
    });
  command
    .command('attach')
    .description('attaches a volume to a machine')
    .argument('<volume>', 'the id of the volume', parseId)
    .argument('<machine>', 'the id of the machine', parseId)
    .option('--path <path>', 'where to mount it (/mnt/VOLUME)')
    .option('--json', 'print the answer of the API')
    .action(async (id, machineId, { path, json }) => {
      const target = { machine_id: machineId, ...onlyGiven({ mount_path: path }) };
      printChanged([await connect().volumes.attach(id, target)], json);
    });
  for (const action of ['detach', 'get'] as const) {
    command
      .command(action)
      .description(action === 'get' ? 'shows volumes' : 'unmounts and detaches volumes')
      .argument('<volume...>', 'the ids of the volumes', collectIds)
      .option('--json', 'print the answer of the API')
      .action(async (ids, { json }) => {
        const { volumes } = connect();
        const changed: Volume[] = [];
        for (const id of ids) changed.push(await volumes[action](id));
        printChanged(changed, json);
      });
  }
  command
    .command('delete')
    .description('deletes volumes and their data')
    .argument('<volume...>', 'the ids of the volumes', collectIds)
    .option('--json', 'print the ids as JSON')
    .action(async (ids, { json }) => {
      const { volumes } = connect();
      for (const id of ids) {
        await volumes.delete(id);
        // Print each id at once: if a later delete fails, the user must know which volumes are deleted already.
        if (!json) printLine(`${id}: deleted`);
      }
      if (json) printJson(ids.map((id) => ({ id })));
    });
}

function printChanged(volumes: readonly Volume[], isJson: boolean | undefined): void {
  if (isJson) printJson(volumes.length === 1 ? volumes[0] : volumes);
  else printVolumes(volumes);
}

function printVolumes(volumes: readonly Volume[]): void {
  if (volumes.length === 0) {
    printLine('No volumes.');
    return;
  }
  const rows = volumes.map((volume) => [
    volume.id,
    volume.name || '-',
    volume.kind,
    `${volume.size_gb}`,
    volume.state,
    volume.machine_id ?? '-',
    volume.mount_path ?? '-',
    volume.created_at,
  ]);
  printTable(['ID', 'NAME', 'KIND', 'SIZE GB', 'STATE', 'MACHINE', 'MOUNTED AT', 'CREATED'], rows);
  for (const { id, error } of volumes) if (error !== null) printLine(`${id}: ${error}`);
}
