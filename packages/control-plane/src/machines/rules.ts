// Checks whether a machine's state allows an action, using the state table of the contract.
import { ServiceError } from '@sandbar/contract/errors.ts';
import {
  MACHINE_STATE_TABLE,
  MACHINE_STATES,
  type MachineAction,
  type MachineState,
} from '@sandbar/contract/machine-states.ts';

/** Returns the states that allow the action. */
export const statesAllowing = (action: MachineAction): MachineState[] =>
  MACHINE_STATES.filter((state) => MACHINE_STATE_TABLE[state][action] === 'allowed');

/**
 * Returns `allowed` if the action may begin, or `noop` if the machine already is in the state to which the action
 * leads. Throws `conflict` with the current state and the states that the action needs.
 */
export function checkAction(state: MachineState, action: MachineAction): 'allowed' | 'noop' {
  const verdict = MACHINE_STATE_TABLE[state][action];
  if (verdict) return verdict;
  throw stateRefusal(state, action);
}

/** Returns the error for an action that the machine's state does not allow. */
export const stateRefusal = (state: MachineState, action: MachineAction): ServiceError =>
  new ServiceError('conflict', `The machine is ${state}; ${action} needs it ${statesAllowing(action).join(' or ')}.`);
