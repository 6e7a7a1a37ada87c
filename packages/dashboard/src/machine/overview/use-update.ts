// Changes the editable fields of a machine and shows the answer at once.
import { useQueryClient } from '@tanstack/react-query';
import { api, type Schemas, unwrap } from '../../api/client.ts';
import { useAction } from '../../machines/use-action.ts';
import { machineQuery } from '../machine-query.ts';

export function useUpdate(id: string, onDone: () => void) {
  const queryClient = useQueryClient();
  return useAction(
    (body: Schemas['MachineUpdate']) => unwrap(api.PATCH('/v1/machines/{id}', { params: { path: { id } }, body })),
    (machine) => {
      queryClient.setQueryData(machineQuery(id).queryKey, machine);
      onDone();
    },
  );
}

/** Why the machine cannot be changed; undefined when it can. Only a destroyed machine cannot. */
export const reasonAgainstUpdate = ({ state }: Pick<Schemas['Machine'], 'state'>): string | undefined =>
  state === 'destroyed' ? 'The machine is destroyed.' : undefined;
