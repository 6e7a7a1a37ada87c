// Stops or destroys several machines, a few at a time.
import { ApiProblem, api, type Schemas, unwrap } from '../api/client.ts';
import { withinRateLimit } from './rate-limit.ts';

type Machine = Schemas['Machine'];
export type BulkAction = 'stop' | 'destroy';
export type BulkFailure = { machine: Machine; error: ApiProblem };

const AT_ONCE = 6;

/**
 * Runs the action for every machine, also after a failure. Returns the machines for which it failed, each with the
 * API's error.
 */
export async function runBulk(machines: readonly Machine[], action: BulkAction): Promise<BulkFailure[]> {
  const waiting = machines.values();
  const failures: BulkFailure[] = [];
  const worker = async () => {
    for (const machine of waiting) {
      try {
        await withinRateLimit(() => act(machine.id, action));
      } catch (error) {
        if (!(error instanceof ApiProblem)) throw error;
        // Another client destroyed the machine first, which is what the person wanted.
        if (action === 'destroy' && error.code === 'not_found') continue;
        failures.push({ machine, error });
      }
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, worker));
  return failures;
}

const act = (id: string, action: BulkAction) => {
  const params = { path: { id } };
  return action === 'stop'
    ? unwrap(api.POST('/v1/machines/{id}/stop', { params }))
    : unwrap(api.DELETE('/v1/machines/{id}', { params }));
};
