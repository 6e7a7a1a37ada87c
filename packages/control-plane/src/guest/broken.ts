// Finds out why the connection to a guest broke. Often its machine was stopped or deleted. Then the client must learn
// that, instead of being asked to retry.
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { App } from '../app.ts';
import { findRunningMachine } from '../machines/running.ts';

/** Returns `error`. But if it is `host_unavailable` and the machine does not run, returns the error that says so. */
export async function explainBreak(app: App, accountId: string, machineId: string, error: unknown): Promise<unknown> {
  if (!(error instanceof ServiceError) || error.code !== 'host_unavailable') return error;
  const why = await findRunningMachine(app, accountId, machineId, false).catch((reason: unknown) => reason);
  return why instanceof ServiceError ? why : error;
}
