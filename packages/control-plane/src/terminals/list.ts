// Lists the terminals of a machine, and ends one.
import { GuestTerminalDone, GuestTerminals, type TerminalList } from '@sandbar/contract/terminal.ts';
import type { App } from '../app.ts';
import { callGuest } from '../guest/call.ts';
import type { Caller } from '../http/route-config.ts';

/** The terminals of a machine that run. Throws `not_found`, `conflict` when the machine does not run. */
export async function listTerminals(app: App, caller: Caller, machineId: string): Promise<TerminalList> {
  const { terminals } = await callGuest(app, caller, machineId, 'terminals.list', {}, GuestTerminals);
  // The guest may answer more fields than these.
  const known = terminals.map(({ id, created_at, connections, cols, rows, command }) => {
    return { id, created_at: new Date(created_at).toISOString(), connections, cols, rows, command };
  });
  return { terminals: known.sort((a, b) => a.created_at.localeCompare(b.created_at)) };
}

/** Ends a terminal and its processes. Throws `not_found`, `conflict` when the machine does not run. */
export async function deleteTerminal(app: App, caller: Caller, machineId: string, id: string): Promise<void> {
  await callGuest(app, caller, machineId, 'terminals.end', { id: id.toLowerCase() }, GuestTerminalDone);
}
