// Finds out why the connection to a guest broke. Often the reason is that its machine was stopped or deleted, and then the
// client must learn that, instead of a request to retry.
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { App } from '../app.ts';
import { findRunningMachine } from '../machines/running.ts';

/** Returns `error`, unless it is `host_unavailable` and the machine does not run any more. Then returns that reason. */
export async function explainBreak(app: App, accountId: string, machineId: string, error: unknown): Promise<unknown> {
  if (!(error instanceof ServiceError) || error.code !== 'host_unavailable') return error;
  const why = await findRunningMachine(app, accountId, machineId, false).catch((reason: unknown) => reason);
  return why instanceof ServiceError ? why : error;
}
