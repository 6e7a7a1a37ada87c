// What a machine is doing while an operation is under way, in words such as "stopping".
import type { OperationKind } from '@sandbar/contract/machine-states.ts';
import type { Schemas } from '../api/client.ts';

const WORDS: Record<OperationKind, string> = {
  create: 'creating',
  start: 'starting',
  stop: 'stopping',
  destroy: 'destroying',
  restore: 'restoring',
  snapshot: 'taking a snapshot',
  attach: 'attaching a volume',
  detach: 'detaching a volume',
  move: 'moving to another host',
};

type Operation = NonNullable<Schemas['Machine']['operation']>;

/** Says "stopping" or "stopping, attempt 3". */
export function operationWords({ kind, attempts }: Pick<Operation, 'kind' | 'attempts'>): string {
  return attempts > 1 ? `${WORDS[kind]}, attempt ${attempts}` : WORDS[kind];
}
