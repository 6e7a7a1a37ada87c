// Which machines hold the memory that their host promised them.
import type { MachineState } from '@sandbar/contract/machine.ts';

export const MEMORY_HOLDERS: readonly MachineState[] = ['provisioning', 'running'];
export const holdsMemory = (state: MachineState): boolean => MEMORY_HOLDERS.includes(state);
