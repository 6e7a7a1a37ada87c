// `sandbar machine`: creates, lists, shows, starts, stops, changes and destroys machines.
import type { Command } from '@commander-js/extra-typings';
import type { Machine } from '@sandbar/contract/machine.ts';
import { collectIds, collectVariables, onlyGiven, parseId, UsageError } from '../arguments.ts';
import { confirm, YES_OPTION } from '../confirm.ts';
import { connect } from '../connect.ts';
import { addExamples } from '../examples.ts';
import { inTurn } from '../in-turn.ts';
import { printMachineAnswers, printMachineLine } from '../machine-table.ts';
import { addLabelOptions, addMachineOptions, machineCreateOf, machineUpdateOf, withSourceIds } from '../options.ts';
import { printJson } from '../print.ts';
import { BY_NAME, resolveId, resolveIds } from '../resolve-id.ts';
import { defineMachineLs } from './machine-ls.ts';
import { defineMachineWait } from './machine-wait.ts';

const CALLS = {
  get: { description: 'shows machines', example: 'sandbar machine get web --json' },
  start: { description: 'starts stopped machines, and returns when they run', example: 'sandbar machine start web db' },
  stop: { description: 'stops machines, and keeps their disks', example: 'sandbar machine stop web' },
} as const;

export function defineMachine(command: Command): void {
  addExamples(command, 'sandbar machine create --name web --stack python', 'sandbar machine rm web');
  defineCreate(command.command('create'));
  defineMachineLs(command.command('ls').description('lists all machines'), 'machine ls');
  for (const action of ['get', 'start', 'stop'] as const) {
    const { description, example } = CALLS[action];
    const defined = command
      .command(action)
      .description(description)
      .argument('<machine...>', `the machines, each ${BY_NAME}`, collectIds)
      .option('--json', 'print the answer of the API')
      .action(async (names, { json }) => {
        const client = connect();
        const ids = await resolveIds(client, 'machine', names);
        printMachineAnswers(await inTurn(ids, (id) => client.machines[action](id)), json);
      });
    addExamples(defined, example);
  }
  defineRm(command.command('rm'));
  defineMachineWait(command.command('wait'));
  defineSet(command.command('set'));
}

function defineCreate(command: Command): void {
  const defined = addMachineOptions(command)
    .description('creates a machine and returns when it runs')
    .option('--env <key=value>', 'a variable of all its jobs, as often as needed', collectVariables)
    .option('--json', 'print the answer of the API')
    .action(async ({ env, json, ...options }) => {
      const client = connect();
      const spec = { ...machineCreateOf(await withSourceIds(client, options)), ...onlyGiven({ env }) };
      printMachineAnswers([await client.machines.create(spec)], json);
    });
  addExamples(
    defined,
    'sandbar machine create --name web --stack python --memory 2048',
    'sandbar machine create --snapshot before-update --expires 2h',
    'sandbar machine create --name web --volume data:/data --volume cache',
  );
}

function defineRm(command: Command): void {
  const defined = command
    .description('destroys machines and their disks')
    .argument('<machine...>', `the machines, each ${BY_NAME}`, collectIds)
    .option('--keep-disk', 'keep the disk as a detached volume')
    .option('--delete-snapshots', 'delete the snapshots of the machine too; it is not destroyed while it has some')
    .option(...YES_OPTION)
    .option('--json', 'print the answer of the API')
    .addHelpText(
      'after',
      `
Destroys the machines that are named without asking. It asks only with --delete-snapshots, unless there is --yes.`,
    )
    .action(async (names, { json, keepDisk: preserveStorage, deleteSnapshots, yes }) => {
      const client = connect();
      const ids = await resolveIds(client, 'machine', names);
      if (deleteSnapshots) await confirm(`Destroy ${ids.join(', ')} and all of their snapshots?`, yes);
      const options = { preserveStorage, deleteSnapshots };
      const destroyed: Machine[] = [];
      try {
        for (const id of ids) {
          const machine = await client.machines.destroy(id, options);
          destroyed.push(machine);
          // Print each machine at once. If a later destroy fails, the user must know which machines are destroyed, and
          // which volumes keep their disks.
          if (!json) printMachineLine(machine);
        }
      } finally {
        if (json && destroyed.length > 0) printJson(ids.length === 1 ? destroyed[0] : destroyed);
      }
    });
  addExamples(defined, 'sandbar machine rm web db', 'sandbar machine rm web --keep-disk');
}

function defineSet(command: Command): void {
  const defined = addLabelOptions(command)
    .description('changes name, metadata or expiry of a machine')
    .argument('<machine>', `the machine, ${BY_NAME}`, parseId)
    .option('--json', 'print the answer of the API')
    .addHelpText('after', '\n--metadata replaces all metadata. --expires counts from now.')
    .action(async (name, { json, ...options }) => {
      const changes = machineUpdateOf(options);
      if (Object.keys(changes).length === 0) {
        throw new UsageError('what is to change? --name, --metadata, --expires or --on-expiry');
      }
      const client = connect();
      const id = await resolveId(client, 'machine', name);
      printMachineAnswers([await client.machines.update(id, changes)], json);
    });
  addExamples(defined, 'sandbar machine set web --name api', 'sandbar machine set web --expires never');
}
