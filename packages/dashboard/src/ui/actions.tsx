// Actions on rows: what is under way, and what failed. A failure stays with its reason until it is dismissed, also when
// several actions run at the same time.
import { type Mutation, useMutation, useMutationState, useQueryClient } from '@tanstack/react-query';
import { Failure } from './failure.tsx';

/** `doing`: such as "Detaching". `name`: of what. */
export type Action = { doing: string; name: string; run: () => Promise<unknown> };

/** `scope` names the page. `refresh`: the first parts of the keys of the queries that an action changes. */
export function useActions(scope: string, refresh: readonly string[]) {
  const client = useQueryClient();
  return useMutation({
    mutationKey: ['actions', scope],
    mutationFn: ({ run }: Action) => run(),
    // A failure stays until it is dismissed.
    gcTime: Number.POSITIVE_INFINITY,
    onSettled: () => Promise.all(refresh.map((key) => client.invalidateQueries({ queryKey: [key] }))),
  });
}

const describe = ({ mutationId, state }: Mutation) => {
  const { doing, name } = state.variables as unknown as Action;
  return { id: mutationId, status: state.status, error: state.error, doing, name };
};

export function ActionStatus({ scope }: { scope: string }) {
  const cache = useQueryClient().getMutationCache();
  const actions = useMutationState({ filters: { mutationKey: ['actions', scope] }, select: describe });
  const dismiss = (id: number) => {
    const mutation = cache.getAll().find(({ mutationId }) => mutationId === id);
    if (mutation) cache.remove(mutation);
  };
  return (
    <>
      <div role="status">
        {actions
          .filter(({ status }) => status === 'pending')
          .map(({ id, doing, name }) => (
            <p key={id}>
              {doing} <bdi>{name}</bdi>…
            </p>
          ))}
      </div>
      {actions
        .filter(({ status }) => status === 'error')
        .map(({ id, error, name }) => (
          <Failure key={id} error={error} subject={name} onDismiss={() => dismiss(id)} />
        ))}
    </>
  );
}
