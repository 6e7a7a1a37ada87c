// Who is signed in. The session is a cookie that scripts cannot read, so the page asks the API.
import { queryOptions } from '@tanstack/react-query';
import { ApiProblem, api, type Schemas, unwrap } from '../api/client.ts';

export type Account = Schemas['Account'];

/** The account that this document showed last; undefined when it showed none. */
let lastId: string | undefined;

export function rememberAccount({ id }: Account): void {
  lastId = id;
}

/** Whether this document showed another account before. */
export const isOther = ({ id }: Account): boolean => lastId !== undefined && lastId !== id;

/** The signed-in account; null without a session. */
export const accountQuery = queryOptions({
  queryKey: ['account'],
  queryFn: async (): Promise<Account | null> => {
    try {
      const account = await unwrap(api.GET('/v1/account'));
      rememberAccount(account);
      return account;
    } catch (error) {
      if (error instanceof ApiProblem && error.status === 401) return null;
      throw error;
    }
  },
  staleTime: 30_000,
});

/** Whether the account sees the operator's pages: the first account does, and those that were named operators. */
export const isOperator = (account: Account): boolean => account.is_operator;
