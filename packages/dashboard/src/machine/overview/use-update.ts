// Changes the editable fields of a machine and shows the answer at once.
import { useQueryClient } from '@tanstack/react-query';
import { api, type Schemas, unwrap } from '../../api/client.ts';
import { useAction } from '../../machines/use-action.ts';
import { machineQuery } from '../machine-query.ts';

type Machine = Schemas['Machine'];
type Update = Schemas['MachineUpdate'];

/** `run` takes the change, or a function that makes it from the machine as it is at that moment. */
export function useUpdate(id: string, onDone: () => void) {
  const queryClient = useQueryClient();
  return useAction(
    async (update: Update | ((machine: Machine) => Update)) => {
      const params = { path: { id } };
      const body =
        typeof update === 'function' ? update(await unwrap(api.GET('/v1/machines/{id}', { params }))) : update;
      return unwrap(api.PATCH('/v1/machines/{id}', { params, body }));
    },
    (machine) => {
      queryClient.setQueryData(machineQuery(id).queryKey, machine);
      onDone();
    },
  );
}

/** Why the machine cannot be changed; undefined when it can. Only a destroyed machine cannot. */
export const reasonAgainstUpdate = ({ state }: Pick<Schemas['Machine'], 'state'>): string | undefined =>
  state === 'destroyed' ? 'The machine is destroyed.' : undefined;
