// `sandbar machine wait`: returns when machines are in the wanted state.
import { setTimeout as delay } from 'node:timers/promises';
import { type Command, Option } from '@commander-js/extra-typings';
import type { Machine } from '@sandbar/contract/machine.ts';
import type { Client } from '@sandbar/sdk/client.ts';
import { collectIds, parseDuration } from '../arguments.ts';
import { CliError } from '../cli-error.ts';
import { connect } from '../connect.ts';
import { addExamples } from '../examples.ts';
import { EXIT } from '../exit-codes.ts';
import { printMachineAnswers } from '../machine-table.ts';
import { BY_NAME, resolveIds } from '../resolve-id.ts';

const STATES = ['running', 'stopped', 'destroyed'] as const;
/** The pause between two requests for the state of a machine, in milliseconds. */
const LOOK_MS = 500;

export function defineMachineWait(command: Command): void {
  const defined = command
    .description('waits until machines run, or are in another state')
    .argument('<machine...>', `the machines, each ${BY_NAME}`, collectIds)
    .addOption(new Option('--for <state>', 'the state to wait for').choices(STATES).default('running'))
    .option('--timeout <duration>', 'give up after a time such as 90s or 5m, with exit code 124 (never)', parseDuration)
    .option('--json', 'print the answer of the API')
    .action(async (names, { for: state, timeout, json }) => {
      const client = connect();
      const deadline = timeout === undefined ? Number.POSITIVE_INFINITY : performance.now() + timeout * 1000;
      const machines: Machine[] = [];
      for (const id of await resolveIds(client, 'machine', names)) {
        machines.push(await waitFor(client, id, state, deadline));
      }
      printMachineAnswers(machines, json);
    });
  addExamples(defined, 'sandbar machine wait web', 'sandbar machine wait web db --for stopped --timeout 2m');
}

/** Waits until the machine is in the state. Throws CliError when it can no longer get there, or after the deadline. */
async function waitFor(client: Client, id: string, state: Machine['state'], deadline: number): Promise<Machine> {
  for (;;) {
    const machine = await client.machines.get(id);
    if (machine.state === state) return machine;
    if (machine.state === 'error' || machine.state === 'destroyed') {
      throw new CliError(
        EXIT.error,
        `machine ${id} is ${machine.state}, so it does not become ${state}${reason(machine)}`,
      );
    }
    if (performance.now() + LOOK_MS > deadline) {
      throw new CliError(EXIT.timeout, `machine ${id} is still ${machine.state} and not ${state}`);
    }
    await delay(LOOK_MS);
  }
}

const reason = ({ error }: Machine): string => (error === null ? '' : `: ${error}`);
