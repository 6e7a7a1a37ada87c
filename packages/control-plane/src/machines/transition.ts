// Which action a state allows: the contract's table, turned into an answer or a refusal.
import { ServiceError } from '@sandbar/contract/errors.ts';
import { MACHINE_STATE_TABLE, type MachineAction, type MachineState } from '@sandbar/contract/machine.ts';
import type { Desired } from '../db/tables.ts';

/** The machine's deletion began: from then on no observation changes it, only the deletion itself. */
export const LEAVING: readonly Desired[] = ['destroyed', 'discarded'];
export const isLeaving = (desired: Desired): boolean => LEAVING.includes(desired);

/** Nothing brings a machine back whose deletion began, also when its host is away. Throws `conflict`. */
export function checkNotLeaving(desired: Desired): void {
  if (isLeaving(desired)) {
    throw new ServiceError('conflict', 'The machine is being deleted.');
  }
}

/** `allowed` or `noop`. Throws `conflict` naming the state and what the action needs. */
export function checkAction(state: MachineState, action: MachineAction): 'allowed' | 'noop' {
  const verdict = MACHINE_STATE_TABLE[state][action];
  if (verdict) return verdict;
  const states = Object.entries(MACHINE_STATE_TABLE)
    .filter(([, actions]) => actions[action] === 'allowed')
    .map(([name]) => name);
  throw new ServiceError('conflict', `The machine is ${state}; ${action} needs it ${states.join(' or ')}.`);
}
