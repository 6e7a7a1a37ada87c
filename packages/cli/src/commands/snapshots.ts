// `sandbar snapshots`: lists, takes, shows, restores and deletes snapshots.
import type { Command } from '@commander-js/extra-typings';
import type { Snapshot } from '@sandbar/contract/snapshot.ts';
import { collectIds, onlyGiven, parseId } from '../arguments.ts';
import { connect } from '../connect.ts';
import { printJson, printLine, printTable } from '../print.ts';

export function defineSnapshots(command: Command): void {
  command.addHelpText(
    'after',
    `
A snapshot keeps the disk of a running or stopped machine; with --memory, the processes of a running one as well.
sandbar run --snapshot SNAPSHOT creates a machine from one, which lives on when the snapshot is deleted.`,
  );
  command
    .command('list')
    .description('lists all snapshots, or those of a machine (the default)')
    .argument('[machine]', 'the id of the machine', parseId)
    .option('--json', 'print the answer of the API')
    .action(async (machineId, { json }) => {
      const snapshots = await connect().snapshots.list(onlyGiven({ machineId }));
      if (json) printJson({ snapshots });
      else printSnapshots(snapshots);
    });
  command
    .command('create')
    .description('takes a snapshot of a machine')
    .argument('<machine>', 'the id of the machine', parseId)
    .option('--name <name>', 'a label for the snapshot')
    .option('--memory', 'keep the processes as well')
    .option('--json', 'print the answer of the API')
    .action(async (machineId, { json, ...spec }) => {
      printFound([await connect().snapshots.create(machineId, onlyGiven(spec))], json);
    });
  command
    .command('restore')
    .description("brings a machine's disk back: later writes are lost, and a running machine reboots")
    .argument('<snapshot>', 'the id of the snapshot', parseId)
    .option('--json', 'print the answer of the API')
    .action(async (id, { json }) => {
      const machine = await connect().snapshots.restore(id);
      if (json) printJson(machine);
      else printLine(`machine ${machine.id}: restored, ${machine.state}`);
    });
  command
    .command('get')
    .description('shows snapshots')
    .argument('<snapshot...>', 'the ids of the snapshots', collectIds)
    .option('--json', 'print the answer of the API')
    .action(async (ids, { json }) => {
      const { snapshots } = connect();
      const found: Snapshot[] = [];
      for (const id of ids) found.push(await snapshots.get(id));
      printFound(found, json);
    });
  command
    .command('delete')
    .description('deletes snapshots')
    .argument('<snapshot...>', 'the ids of the snapshots', collectIds)
    .option('--json', 'print the ids as JSON')
    .action(async (ids, { json }) => {
      const { snapshots } = connect();
      for (const id of ids) {
        await snapshots.delete(id);
        // Print each id at once: if a later delete fails, the user must know which snapshots are deleted already.
        if (!json) printLine(`${id}: deleted`);
      }
      if (json) printJson(ids.map((id) => ({ id })));
    });
}

function printFound(snapshots: readonly Snapshot[], isJson: boolean | undefined): void {
  if (isJson) printJson(snapshots.length === 1 ? snapshots[0] : snapshots);
  else printSnapshots(snapshots);
}

function printSnapshots(snapshots: readonly Snapshot[]): void {
  if (snapshots.length === 0) {
    printLine('No snapshots.');
    return;
  }
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
  printTable(['ID', 'NAME', 'KIND', 'SIZE GB', 'KEPT MB', 'STATE', 'MACHINE', 'CREATED'], rows);
  for (const { id, error } of snapshots) if (error !== null) printLine(`${id}: ${error}`);
}
