// `sandbar machines`: lists, creates, changes, shows, stops, starts and destroys machines.
import type { Command } from '@commander-js/extra-typings';
import type { Machine } from '@sandbar/contract/machine.ts';
import { collectIds, collectVariables, onlyGiven, parseId, UsageError } from '../arguments.ts';
import { connect } from '../connect.ts';
import { addLabelOptions, addMachineOptions, machineCreateOf, machineUpdateOf } from '../options.ts';
import { printJson, printLine, printTable } from '../print.ts';

export function defineMachines(command: Command): void {
  command
    .command('list')
    .description('lists all machines (the default)')
    .option('--json', 'print the answer of the API')
    .action(async ({ json }) => {
      const machines = await connect().machines.list();
      if (json) printJson({ machines });
      else printMachines(machines);
    });
  addMachineOptions(command.command('create'))
    .description('creates a machine and returns when it runs')
    .option('--env <key=value>', 'a variable of all its jobs, as often as needed', collectVariables)
    .option('--json', 'print the answer of the API')
    .action(async ({ env, json, ...options }) => {
      const spec = { ...machineCreateOf(options), ...onlyGiven({ env }) };
      printChanged([await connect().machines.create(spec)], json);
    });
  addLabelOptions(command.command('update'))
    .description('changes name, metadata or expiry of a machine')
    .argument('<machine>', 'the id of the machine', parseId)
    .option('--json', 'print the answer of the API')
    .addHelpText('after', '\n--metadata replaces all metadata. --expires counts from now.')
    .action(async (id, { json, ...options }) => {
      const changes = machineUpdateOf(options);
      if (Object.keys(changes).length === 0) {
        throw new UsageError('what is to change? --name, --metadata, --expires or --on-expiry');
      }
      printChanged([await connect().machines.update(id, changes)], json);
    });
  for (const action of ['get', 'stop', 'start'] as const) {
    const names = { get: 'shows', stop: 'stops', start: 'starts' };
    const subcommand = command
      .command(action)
      .description(`${names[action]} machines${action === 'stop' ? ', and keeps their disks' : ''}`)
      .argument('<machine...>', 'the ids of the machines', collectIds)
      .option('--json', 'print the answer of the API')
      .action(async (ids, { json }) => {
        const { machines } = connect();
        printChanged(await inTurn(ids, (id) => machines[action](id)), json);
      });
    if (action === 'get') subcommand.alias('show');
  }
  command
    .command('destroy')
    .description('destroys machines and their disks')
    .argument('<machine...>', 'the ids of the machines', collectIds)
    .option('--keep-disk', 'keep the disk as a detached volume')
    .option('--delete-snapshots', 'delete the snapshots of the machine too; it is not destroyed while it has some')
    .option('--json', 'print the answer of the API')
    .action(async (ids, { json, keepDisk: preserveStorage, deleteSnapshots }) => {
      const { machines } = connect();
      printChanged(await inTurn(ids, (id) => machines.destroy(id, { preserveStorage, deleteSnapshots })), json);
    });
}

/** Calls `act` for one id after the other, and stops at the first error. */
async function inTurn<T>(ids: readonly string[], act: (id: string) => Promise<T>): Promise<T[]> {
  const results: T[] = [];
  for (const id of ids) results.push(await act(id));
  return results;
}

function printChanged(machines: readonly Machine[], isJson: boolean | undefined): void {
  if (isJson) printJson(machines.length === 1 ? machines[0] : machines);
  else printMachines(machines);
}

function printMachines(machines: readonly Machine[]): void {
  if (machines.length === 0) {
    printLine('No machines.');
    return;
  }
  const rows = machines.map((machine) => [
    machine.id,
    machine.name || '-',
    machine.state,
    machine.operation?.kind ?? '-',
    `${machine.vcpus}`,
    `${machine.memory_mb}`,
    `${machine.rootfs_size_gb}`,
    machine.private_ip ?? '-',
    machine.created_at,
    machine.expires_at === null ? '-' : `${machine.expires_at} (${machine.on_expiry})`,
  ]);
  const headings = ['ID', 'NAME', 'STATE', 'OPERATION', 'VCPUS', 'MEMORY MB', 'DISK GB', 'IP', 'CREATED', 'EXPIRES'];
  printTable(headings, rows);
  for (const machine of machines) for (const remark of remarksOn(machine)) printLine(`${machine.id}: ${remark}`);
}

/** The lines below the table: the machine's error, its unfinished operation, and the volume that keeps its disk. */
function remarksOn({ error, operation, root_volume_id, state }: Machine): string[] {
  const remarks: string[] = [];
  if (error !== null) remarks.push(error);
  if (operation !== null) {
    const failure = operation.last_error === null ? '' : `: ${operation.last_error}`;
    const attempt = operation.attempts > 1 ? `, attempt ${operation.attempts}` : '';
    remarks.push(`${operation.kind} is under way since ${operation.since}${attempt}${failure}`);
  }
  if (state === 'destroyed' && root_volume_id !== null) remarks.push(`its disk is kept as volume ${root_volume_id}`);
  return remarks;
}
