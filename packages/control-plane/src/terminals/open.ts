// Connects to a terminal with what a spent ticket says: opens the terminal first when it is a new one.
import type { GuestCallName } from '@sandbar/contract/guest-calls.ts';
import {
  GuestTerminalDone,
  GuestTerminalHead,
  GuestTerminalOpened,
  type OpenTerminal,
  TERMINAL_BOUNDS,
} from '@sandbar/contract/terminal.ts';
import type { TSchema } from 'typebox';
import type { App } from '../app.ts';
import { checkAnswer } from '../guest/answer.ts';
import { callGuest } from '../guest/call.ts';
import { type MachineStream, openGuestStream } from '../guest/stream.ts';
import type { Places } from '../http/places.ts';
import type { Caller } from '../http/route-config.ts';
import { findRunningMachine } from '../machines/running.ts';
import type { SpentTicket } from './store.ts';

export type TerminalStream = MachineStream & {
  /** The number of the first byte that follows, in the whole output of the terminal. */
  offset: number;
};

/** The holder of a ticket acts with the credential that the ticket was made with. */
const holderOf = ({ account_id, via, credential_id }: SpentTicket): Caller => ({
  accountId: account_id,
  via,
  credentialId: credential_id,
  scope: 'full',
  isSuspended: false,
  rates: { mutating: null, exec: null },
});

/** Throws `conflict` unless the machine runs. A terminal does not wait for a machine that is being started. */
export async function requireRunning(app: App, { account_id, machine_id }: SpentTicket): Promise<void> {
  await findRunningMachine(app, account_id, machine_id, false);
}

/**
 * Opens the stream of a terminal. It ends when `signal` is aborted, and for the reasons of every guest stream. Throws
 * `not_found` when the terminal to join has ended, `conflict`, `rate_limited`, `host_unavailable`.
 */
export async function connectTerminal(
  app: App,
  ticket: SpentTicket,
  places: Places,
  signal: AbortSignal,
): Promise<TerminalStream> {
  const { machine_id: machineId, terminal_id: id, wanted } = ticket;
  const caller = holderOf(ticket);
  if (wanted.opens !== null) await open(app, ticket, wanted.opens);
  else if (wanted.size !== null) await resizeTerminal(app, ticket, wanted.size);
  const options = { waits: false, places, signal };
  const stream = await openGuestStream(app, caller, machineId, 'terminals.attach', { id }, options).catch(
    (error: unknown) => {
      // No client is connected to the new terminal, so end it now instead of at its idle time limit.
      if (wanted.opens !== null) void endTerminal(app, ticket).catch(() => undefined);
      throw error;
    },
  );
  try {
    return { ...stream, offset: checkAnswer(GuestTerminalHead, stream.head).offset };
  } catch (error) {
    stream.duplex.destroy();
    throw error;
  }
}

/** Changes the size of a terminal. */
export async function resizeTerminal(
  app: App,
  ticket: SpentTicket,
  { cols, rows }: { cols: number; rows: number },
): Promise<void> {
  const params = { id: ticket.terminal_id, cols, rows };
  await call(app, ticket, 'terminals.resize', params, GuestTerminalDone);
}

async function open(app: App, ticket: SpentTicket, opens: NonNullable<SpentTicket['wanted']['opens']>): Promise<void> {
  const { size } = ticket.wanted;
  const params: OpenTerminal = {
    ...opens,
    id: ticket.terminal_id,
    cols: size?.cols ?? TERMINAL_BOUNDS.colsDefault,
    rows: size?.rows ?? TERMINAL_BOUNDS.rowsDefault,
    idle_sec: app.config.terminalIdleSec,
  };
  await call(app, ticket, 'terminals.open', params, GuestTerminalOpened);
}

async function endTerminal(app: App, ticket: SpentTicket): Promise<void> {
  await call(app, ticket, 'terminals.end', { id: ticket.terminal_id }, GuestTerminalDone);
}

const call = (app: App, ticket: SpentTicket, name: GuestCallName, params: object, schema: TSchema) =>
  callGuest(app, holderOf(ticket), ticket.machine_id, name, params, schema, { waits: false });
