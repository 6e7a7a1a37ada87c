// What clients are told when the database fails. The text is the same for a request that fails itself and for one that
// waits for an operation whose attempt failed.
import { ServiceError } from '@sandbar/contract/errors.ts';
import { CommitUnknown, isDatabaseAway, isDatabaseFailure, isDatabaseFull, isTransactionConflict } from './failures.ts';

/** Returns what clients are told about a failure of the database. Returns undefined for every other error. */
export function refusalOfDatabase(error: unknown): ServiceError | undefined {
  if (error instanceof CommitUnknown) {
    const detail =
      'The connection to the database broke while this request was being recorded, so it may have been done. ' +
      'Retry with the same Idempotency-Key or reference, or look first.';
    return new ServiceError('database_unavailable', detail, { retryAfterSec: 2, cause: error });
  }
  if (isTransactionConflict(error)) {
    const detail = 'Parallel requests were in the way of this one. Retry.';
    return new ServiceError('database_unavailable', detail, { retryAfterSec: 1, cause: error });
  }
  if (isDatabaseAway(error)) {
    const detail = 'The database does not answer now. Retry later.';
    return new ServiceError('database_unavailable', detail, { retryAfterSec: 2, cause: error });
  }
  if (isDatabaseFull(error)) {
    const detail =
      'The service has no disk space left: a fleet limit, not an account quota. Free some, or retry later.';
    return new ServiceError('fleet_capacity', detail, { retryAfterSec: 60, cause: error });
  }
  if (isDatabaseFailure(error)) {
    const detail = 'The database cannot do this now. Retry later.';
    return new ServiceError('database_unavailable', detail, { retryAfterSec: 5, cause: error });
  }
  return undefined;
}
