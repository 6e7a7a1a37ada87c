// A mutation that runs once for a double click. React renders the busy button shortly after the first click, so without
// this the second click would create another thing.
import { type UseMutationOptions, useMutation, useQueryClient } from '@tanstack/react-query';
import { useId } from 'react';

/** Like `useMutation`, but `run` does nothing while an earlier call is under way. */
export function useSingle<Data, Input>(options: UseMutationOptions<Data, Error, Input>) {
  const client = useQueryClient();
  const mutationKey = ['single', useId()];
  const { mutate, data, error, isIdle, isPending, isSuccess, reset } = useMutation({ ...options, mutationKey });
  const run = (input: Input, onSuccess?: () => void) => {
    if (client.isMutating({ mutationKey }) === 0) mutate(input, { onSuccess: () => onSuccess?.() });
  };
  return { run, data, error, isIdle, isPending, isSuccess, reset };
}
