// The state of a machine and what is under way on it.
import type { MachineState } from '@sandbar/contract/machine-states.ts';
import type { Schemas } from '../api/client.ts';
import { Badge, type Tone } from '../ui/badge.tsx';
import { operationWords } from './operation-words.ts';

const TONES: Record<MachineState, Tone> = {
  pending: 'wait',
  provisioning: 'wait',
  running: 'good',
  stopped: 'quiet',
  error: 'bad',
  destroyed: 'quiet',
};

/** During these operations the machine stays in its state. The others lead to another state. */
const KEEPS_STATE: ReadonlySet<string> = new Set(['snapshot', 'attach', 'detach', 'move']);

type Props = { machine: Pick<Schemas['Machine'], 'state' | 'operation'> };

/** Says "running", "stopping…", or "running, taking a snapshot…". */
export function StateBadge({ machine: { state, operation } }: Props) {
  if (!operation) return <Badge tone={TONES[state]}>{state}</Badge>;
  const words = `${operationWords(operation)}…`;
  return <Badge tone="wait">{KEEPS_STATE.has(operation.kind) ? `${state}, ${words}` : words}</Badge>;
}
