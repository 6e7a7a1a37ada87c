// The refusal of requests of suspended accounts.
import { ServiceError } from '@sandbar/contract/errors.ts';

/** The error for everything that a suspended account may not do. */
export const accountIsSuspended = (): ServiceError =>
  new ServiceError(
    'forbidden',
    'The account is suspended. It can read, but change nothing until the operator of this service resumes it.',
  );
