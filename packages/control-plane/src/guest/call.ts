// Calls the guest agent of a machine on behalf of a client: one JSON request, one JSON answer, which is checked.
import type { GuestCallName } from '@sandbar/contract/guest-calls.ts';
import type { Static, TSchema } from 'typebox';
import type { App } from '../app.ts';
import type { Caller } from '../http/route-config.ts';
import { findRunningMachine } from '../machines/running.ts';
import { checkAnswer, toGuestRefusal } from './answer.ts';
import { explainBreak } from './broken.ts';

export type CallOptions = {
  /** Whether the call waits up to 30 s for a machine that is on its way to running. Default: true. */
  waits?: boolean;
  /** Aborted when the client has gone. */
  signal?: AbortSignal;
};

/**
 * Calls the guest of a machine. Throws `not_found` for an absent or foreign machine, `conflict` for a machine that does
 * not run or is too old for the call, `host_unavailable`, `internal_error` for an answer that does not match `schema`,
 * and the refusals of the guest.
 */
export async function callGuest<T extends TSchema>(
  app: App,
  { accountId }: Pick<Caller, 'accountId'>,
  machineId: string,
  name: GuestCallName,
  params: object,
  schema: T,
  { waits = true, signal }: CallOptions = {},
): Promise<Static<T>> {
  const machine = await findRunningMachine(app, accountId, machineId, waits);
  const client = app.hosts.client(machine.host_id);
  const answer = await client.callGuest(machine.id, name, params, signal).catch(async (error: unknown) => {
    throw await explainBreak(app, accountId, machine.id, toGuestRefusal(error, name));
  });
  return checkAnswer(schema, answer);
}
