// `sandbar volume`: creates, lists, shows, attaches, detaches and deletes volumes.
import type { Command } from '@commander-js/extra-typings';
import type { Volume } from '@sandbar/contract/volume.ts';
import { collectIds, onlyGiven, parseId, parseInteger } from '../arguments.ts';
import { confirm, YES_OPTION } from '../confirm.ts';
import { connect } from '../connect.ts';
import { addExamples } from '../examples.ts';
import { printJson, printLine, printNotice, printRows } from '../print.ts';
import { BY_NAME, resolveId, resolveIds } from '../resolve-id.ts';

const HEADINGS = ['ID', 'NAME', 'KIND', 'SIZE GB', 'STATE', 'MACHINE', 'MOUNTED AT', 'CREATED'];

const CALLS = {
  get: { description: 'shows volumes', example: 'sandbar volume get data --json' },
  detach: { description: 'unmounts and detaches volumes', example: 'sandbar volume detach data' },
} as const;

export function defineVolume(command: Command): void {
  command.addHelpText(
    'after',
    `
A volume is mounted at PATH, by default /mnt/VOLUME, in a machine that runs or is started.
A volume on another host than the machine is copied to the machine's host first.
sandbar machine rm --keep-disk makes a volume of a machine's disk.`,
  );
  addExamples(command, 'sandbar volume create --name data --size 10', 'sandbar volume attach data web --path /data');
  defineCreate(command.command('create'));
  defineLs(command.command('ls'));
  defineEach(command, 'get');
  defineAttach(command.command('attach'));
  defineEach(command, 'detach');
  defineRm(command.command('rm'));
}

function defineCreate(command: Command): void {
  const defined = command
    .description('creates an empty volume')
    .requiredOption('--size <gb>', 'its size, GiB', parseInteger)
    .option('--name <name>', 'a label for the volume')
    .option('--json', 'print the answer of the API')
    .action(async ({ size, name, json }) => {
      printAnswers([await connect().volumes.create({ size_gb: size, ...onlyGiven({ name }) })], json);
    });
  addExamples(defined, 'sandbar volume create --name data --size 10');
}

function defineLs(command: Command): void {
  const defined = command
    .description('lists all volumes')
    .option('--json', 'print the answer of the API')
    .action(async ({ json }) => {
      const volumes = await connect().volumes.list();
      if (json) printJson({ volumes });
      else printVolumes(volumes);
    });
  addExamples(defined, 'sandbar volume ls');
}

function defineAttach(command: Command): void {
  const defined = command
    .description('attaches a volume to a machine')
    .argument('<volume>', `the volume, ${BY_NAME}`, parseId)
    .argument('<machine>', `the machine, ${BY_NAME}`, parseId)
    .option('--path <path>', 'where to mount it (/mnt/VOLUME)')
    .option('--json', 'print the answer of the API')
    .action(async (volume, machine, { path, json }) => {
      const client = connect();
      const id = await resolveId(client, 'volume', volume);
      const target = { machine_id: await resolveId(client, 'machine', machine), ...onlyGiven({ mount_path: path }) };
      printAnswers([await client.volumes.attach(id, target)], json);
    });
  addExamples(defined, 'sandbar volume attach data web --path /data');
}

/** Defines a command that calls the API for each volume and prints the answers. */
function defineEach(command: Command, action: 'get' | 'detach'): void {
  const { description, example } = CALLS[action];
  const defined = command
    .command(action)
    .description(description)
    .argument('<volume...>', `the volumes, each ${BY_NAME}`, collectIds)
    .option('--json', 'print the answer of the API')
    .action(async (names, { json }) => {
      const client = connect();
      const answers: Volume[] = [];
      for (const id of await resolveIds(client, 'volume', names)) answers.push(await client.volumes[action](id));
      printAnswers(answers, json);
    });
  addExamples(defined, example);
}

function defineRm(command: Command): void {
  const defined = command
    .description('deletes volumes and their data, after asking; without a terminal only with --yes')
    .argument('<volume...>', `the volumes, each ${BY_NAME}`, collectIds)
    .option(...YES_OPTION)
    .option('--json', 'print the ids as JSON')
    .action(async (names, { yes, json }) => {
      const client = connect();
      const ids = await resolveIds(client, 'volume', names);
      await confirm(`Delete ${ids.join(', ')} with all data?`, yes);
      for (const id of ids) {
        await client.volumes.delete(id);
        // Print each id at once: if a later delete fails, the user must know which volumes are deleted already.
        if (!json) printLine(`${id}: deleted`);
      }
      if (json) printJson(ids.map((id) => ({ id })));
    });
  addExamples(defined, 'sandbar volume rm data', 'sandbar volume rm data backup --yes');
}

function printAnswers(volumes: readonly Volume[], isJson: boolean | undefined): void {
  if (isJson) printJson(volumes.length === 1 ? volumes[0] : volumes);
  else printVolumes(volumes);
}

function printVolumes(volumes: readonly Volume[]): void {
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
  printRows(HEADINGS, rows, 'No volumes.');
  for (const { id, error } of volumes) if (error !== null) printNotice(`${id}: ${error}`);
}
