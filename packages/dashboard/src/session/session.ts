// Who is signed in. The session is a cookie that scripts cannot read, so the page asks the API.
import { queryOptions } from '@tanstack/react-query';
import { ApiProblem, api, type Schemas, unwrap } from '../api/client.ts';

export type Account = Schemas['Account'];

/** The signed-in account; null without a session. */
export const accountQuery = queryOptions({
  queryKey: ['account'],
  queryFn: async (): Promise<Account | null> => {
    try {
      return await unwrap(api.GET('/v1/account'));
    } catch (error) {
      if (error instanceof ApiProblem && error.status === 401) return null;
      throw error;
    }
  },
  staleTime: 30_000,
});
