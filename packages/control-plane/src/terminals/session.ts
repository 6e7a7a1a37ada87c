// Hands out the ticket that opens one connection to a terminal.
import { ServiceError } from '@sandbar/contract/errors.ts';
import { TERMINAL_BOUNDS, type TerminalSession, type TerminalSessionCreate } from '@sandbar/contract/terminal.ts';
import { v7 as uuidv7 } from 'uuid';
import type { App } from '../app.ts';
import type { WantedTerminal } from '../db/tables.ts';
import type { Caller } from '../http/route-config.ts';
import { findMachine } from '../machines/store.ts';
import { insertTicket } from './store.ts';
import { generateTicket } from './ticket.ts';

/**
 * Makes a ticket for a machine of the account, in any state: the state is checked when the ticket is spent. Throws
 * `validation_error`, `not_found`.
 */
export async function createTerminalSession(
  app: App,
  caller: Caller,
  machineId: string,
  body: TerminalSessionCreate,
): Promise<TerminalSession> {
  const { terminal_id, cols, rows, ...opens } = body;
  checkSize(opens);
  const machine = await findMachine(app, caller.accountId, machineId);
  const { colsDefault, rowsDefault } = TERMINAL_BOUNDS;
  const hasSize = terminal_id === undefined || cols !== undefined || rows !== undefined;
  const wanted: WantedTerminal = {
    opens: terminal_id === undefined ? { ...opens, env: { ...machine.env, ...opens.env } } : null,
    size: hasSize ? { cols: cols ?? colsDefault, rows: rows ?? rowsDefault } : null,
  };
  const terminalId = terminal_id?.toLowerCase() ?? uuidv7();
  const ticket = generateTicket();
  const expiresAt = await insertTicket(app.db, ticket, {
    account_id: caller.accountId,
    machine_id: machine.id,
    terminal_id: terminalId,
    wanted,
    via: caller.via,
    credential_id: caller.credentialId,
  });
  return {
    ticket,
    machine_id: machine.id,
    terminal_id: terminalId,
    ws_path: `/v1/machines/${machine.id}/terminal`,
    expires_at: expiresAt.toISOString(),
  };
}

function checkSize(opens: object): void {
  if (Buffer.byteLength(JSON.stringify(opens)) <= TERMINAL_BOUNDS.requestBytes) return;
  throw new ServiceError(
    'validation_error',
    `command, env, cwd and user together must be at most ${TERMINAL_BOUNDS.requestBytes} bytes of JSON.`,
  );
}
