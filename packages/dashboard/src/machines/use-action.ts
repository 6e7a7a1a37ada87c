// `useSingle` for the pages of machines: after each call, also a failed one, the lists that a machine shows in are read
// again.
import { useQueryClient } from '@tanstack/react-query';
import { useSingle } from '../ui/use-single.ts';

/** The queries to read again after an action, because a change of a machine may show in all of them. */
const CHANGED = [['machines'], ['volumes'], ['snapshots'], ['quotas']];

/** `onDone` gets the answer of `act`. */
export function useAction<Input, Result>(act: (input: Input) => Promise<Result>, onDone?: (result: Result) => void) {
  const queryClient = useQueryClient();
  return useSingle({
    mutationFn: act,
    onSuccess: (result) => onDone?.(result),
    onSettled: () => {
      for (const queryKey of CHANGED) void queryClient.invalidateQueries({ queryKey });
    },
  });
}
