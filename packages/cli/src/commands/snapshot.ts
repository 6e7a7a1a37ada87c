// `sandbar snapshot`: takes, lists, shows, restores and deletes snapshots.
import type { Command } from '@commander-js/extra-typings';
import type { Snapshot } from '@sandbar/contract/snapshot.ts';
import { collectIds, onlyGiven, parseId } from '../arguments.ts';
import { confirm, YES_OPTION } from '../confirm.ts';
import { connect } from '../connect.ts';
import { addExamples } from '../examples.ts';
import { printJson, printLine, printNotice, printRows } from '../print.ts';
import { BY_NAME, resolveGiven, resolveId, resolveIds } from '../resolve-id.ts';

const HEADINGS = ['ID', 'NAME', 'KIND', 'SIZE GB', 'KEPT MB', 'STATE', 'MACHINE', 'CREATED'];

export function defineSnapshot(command: Command): void {
  command.addHelpText(
    'after',
    `
A snapshot keeps the disk of a running or stopped machine; with --memory, the processes of a running one as well.
sandbar run --snapshot SNAPSHOT creates a machine from one, which lives on when the snapshot is deleted.`,
  );
  addExamples(command, 'sandbar snapshot create web --name before-update', 'sandbar snapshot restore before-update');
  defineCreate(command.command('create'));
  defineLs(command.command('ls'));
  defineGet(command.command('get'));
  defineRestore(command.command('restore'));
  defineRm(command.command('rm'));
}

function defineCreate(command: Command): void {
  const defined = command
    .description('takes a snapshot of a machine')
    .argument('<machine>', `the machine, ${BY_NAME}`, parseId)
    .option('--name <name>', 'a label for the snapshot')
    .option('--memory', 'keep the processes as well')
    .option('--json', 'print the answer of the API')
    .action(async (machine, { json, ...spec }) => {
      const client = connect();
      const machineId = await resolveId(client, 'machine', machine);
      printAnswers([await client.snapshots.create(machineId, onlyGiven(spec))], json);
    });
  addExamples(defined, 'sandbar snapshot create web --name before-update', 'sandbar snapshot create web --memory');
}

function defineLs(command: Command): void {
  const defined = command
    .description('lists all snapshots, or those of a machine')
    .argument('[machine]', `only snapshots of this machine, ${BY_NAME}`, parseId)
    .option('--json', 'print the answer of the API')
    .action(async (machine, { json }) => {
      const client = connect();
      const machineId = await resolveGiven(client, 'machine', machine);
      const snapshots = await client.snapshots.list(onlyGiven({ machineId }));
      if (json) printJson({ snapshots });
      else printSnapshots(snapshots);
    });
  addExamples(defined, 'sandbar snapshot ls', 'sandbar snapshot ls web');
}

function defineGet(command: Command): void {
  const defined = command
    .description('shows snapshots')
    .argument('<snapshot...>', `the snapshots, each ${BY_NAME}`, collectIds)
    .option('--json', 'print the answer of the API')
    .action(async (names, { json }) => {
      const client = connect();
      const found: Snapshot[] = [];
      for (const id of await resolveIds(client, 'snapshot', names)) found.push(await client.snapshots.get(id));
      printAnswers(found, json);
    });
  addExamples(defined, 'sandbar snapshot get before-update --json');
}

function defineRestore(command: Command): void {
  const defined = command
    .description("brings a machine's disk back, after asking; without a terminal only with --yes")
    .argument('<snapshot>', `the snapshot, ${BY_NAME}`, parseId)
    .option(...YES_OPTION)
    .option('--json', 'print the answer of the API')
    .addHelpText('after', '\nWhat was written to the disk since is lost, and a running machine reboots.')
    .action(async (name, { yes, json }) => {
      const client = connect();
      const id = await resolveId(client, 'snapshot', name);
      await confirm(`Go back to snapshot ${id}, and lose what was written to the disk since?`, yes);
      const machine = await client.snapshots.restore(id);
      if (json) printJson(machine);
      else printLine(`machine ${machine.id}: restored, ${machine.state}`);
    });
  addExamples(defined, 'sandbar snapshot restore before-update --yes');
}

function defineRm(command: Command): void {
  const defined = command
    .description('deletes snapshots, after asking; without a terminal only with --yes')
    .argument('<snapshot...>', `the snapshots, each ${BY_NAME}`, collectIds)
    .option(...YES_OPTION)
    .option('--json', 'print the ids as JSON')
    .action(async (names, { yes, json }) => {
      const client = connect();
      const ids = await resolveIds(client, 'snapshot', names);
      await confirm(`Delete ${ids.join(', ')}?`, yes);
      for (const id of ids) {
        await client.snapshots.delete(id);
        // Print each id at once: if a later delete fails, the user must know which snapshots are deleted already.
        if (!json) printLine(`${id}: deleted`);
      }
      if (json) printJson(ids.map((id) => ({ id })));
    });
  addExamples(defined, 'sandbar snapshot rm before-update', 'sandbar snapshot rm before-update --yes');
}

function printAnswers(snapshots: readonly Snapshot[], isJson: boolean | undefined): void {
  if (isJson) printJson(snapshots.length === 1 ? snapshots[0] : snapshots);
  else printSnapshots(snapshots);
}

function printSnapshots(snapshots: readonly Snapshot[]): void {
  const rows = snapshots.map((snapshot) => [
    snapshot.id,
    snapshot.name || '-',
    snapshot.kind,
    `${snapshot.size_gb}`,
    `${Math.ceil(snapshot.stored_bytes / 2 ** 20)}`,
    snapshot.state,
    snapshot.machine_id,
    snapshot.created_at,
  ]);
  printRows(HEADINGS, rows, 'No snapshots.');
  for (const { id, error } of snapshots) if (error !== null) printNotice(`${id}: ${error}`);
}
