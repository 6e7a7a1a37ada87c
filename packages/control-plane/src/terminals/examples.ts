// The examples of terminals in the OpenAPI document.
import type { Terminal, TerminalSession } from '@sandbar/contract/terminal.ts';

const MACHINE_ID = '019b7c1e-5f6a-7b3c-9d2e-4a1f0c8e7b65';
const TERMINAL_ID = '019b7c21-3c4d-7e5f-8a6b-7c8d9e0f1a2b';

export const exampleSession: TerminalSession = {
  ticket: 'sbt_Zm9yIGV4YW1wbGUsIG5vdCBhIHJlYWwgdGlja2V0ISE',
  machine_id: MACHINE_ID,
  terminal_id: TERMINAL_ID,
  ws_path: `/v1/machines/${MACHINE_ID}/terminal`,
  expires_at: '2026-01-02T03:04:35.006Z',
};

export const exampleTerminal: Terminal = {
  id: TERMINAL_ID,
  created_at: '2026-01-02T03:04:05.006Z',
  connections: 1,
  cols: 80,
  rows: 24,
  command: ['/bin/sh', '-l'],
};
