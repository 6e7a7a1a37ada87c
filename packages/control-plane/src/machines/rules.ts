// Which action a state allows: the contract's table, turned into an answer or a refusal.
import { ServiceError } from '@sandbar/contract/errors.ts';
import {
  MACHINE_STATE_TABLE,
  MACHINE_STATES,
  type MachineAction,
  type MachineState,
} from '@sandbar/contract/machine.ts';

/** The states in which an action may begin. */
export const statesAllowing = (action: MachineAction): MachineState[] =>
  MACHINE_STATES.filter((state) => MACHINE_STATE_TABLE[state][action] === 'allowed');

/** `allowed` or `noop`. Throws `conflict` naming the state and what the action needs. */
export function checkAction(state: MachineState, action: MachineAction): 'allowed' | 'noop' {
  const verdict = MACHINE_STATE_TABLE[state][action];
  if (verdict) return verdict;
  throw new ServiceError(
    'conflict',
    `The machine is ${state}; ${action} needs it ${statesAllowing(action).join(' or ')}.`,
  );
}
