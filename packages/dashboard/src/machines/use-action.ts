// A mutation for a button or form. It ignores calls while one is running, because some requests, such as taking a
// snapshot, would act twice.
import { useMutation, useQueryClient } from '@tanstack/react-query';
import { useId } from 'react';

/** The queries to read again after an action, because a change of a machine may show in all of them. */
const CHANGED = [['machines'], ['volumes'], ['snapshots'], ['quotas']];

/** `onDone` gets the answer of `act`. Lists of machines, volumes and snapshots are read again after each call. */
export function useAction<Input, Result>(act: (input: Input) => Promise<Result>, onDone?: (result: Result) => void) {
  const queryClient = useQueryClient();
  const mutationKey = ['action', useId()];
  const { mutate, error, isPending, isIdle, reset } = useMutation({
    mutationKey,
    mutationFn: act,
    onSuccess: (result) => onDone?.(result),
    onSettled: () => {
      for (const queryKey of CHANGED) void queryClient.invalidateQueries({ queryKey });
    },
  });
  const run = (input: Input) => {
    if (queryClient.isMutating({ mutationKey }) === 0) mutate(input);
  };
  return { run, error, isPending, isIdle, reset };
}
