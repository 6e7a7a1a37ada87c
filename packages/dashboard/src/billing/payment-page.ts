// Opens a page of the payment provider in this tab. Further clicks are ignored while the request runs, so a double
// click makes one request.
import { useMutation } from '@tanstack/react-query';
import { useRef } from 'react';
import { rememberBefore, type Visit } from './visit.ts';

export function usePaymentPage<T>(visit: Visit, request: (input: T) => Promise<{ url: string }>) {
  const isOpening = useRef(false);
  const { mutate, ...state } = useMutation({
    mutationFn: async (input: T) => {
      await rememberBefore(visit);
      return request(input);
    },
    onSuccess: ({ url }) => location.assign(url),
    onError: () => {
      isOpening.current = false;
    },
  });
  const open = (input: T) => {
    if (isOpening.current) return;
    isOpening.current = true;
    mutate(input);
  };
  return { open, isBusy: state.isPending || state.isSuccess, error: state.error };
}
