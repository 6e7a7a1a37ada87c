// What may be done with a machine in its present state, and why not. The server decides by the same table of the
// contract.
import { MACHINE_STATE_TABLE, type MachineAction } from '@sandbar/contract/machine-states.ts';
import type { Schemas } from '../api/client.ts';
import { operationWords } from './operation-words.ts';

/** Why the action cannot be done now, as a sentence; undefined when it can. */
export function reasonAgainst(
  machine: Pick<Schemas['Machine'], 'state' | 'operation'>,
  action: MachineAction,
): string | undefined {
  const rule = MACHINE_STATE_TABLE[machine.state][action];
  if (machine.operation && action !== 'destroy') return `Wait: the machine is ${operationWords(machine.operation)}.`;
  if (rule === 'allowed') return undefined;
  if (rule === 'noop') return `The machine is ${machine.state} already.`;
  return `Not possible while the machine is ${machine.state}.`;
}
