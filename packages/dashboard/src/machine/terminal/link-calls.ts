// The requests of a terminal's connection. They are separate from TerminalLink so that tests can replace them.
import { TERMINAL_PROTOCOL } from '@sandbar/contract/terminal-bounds.ts';
import { api, type Schemas, unwrap } from '../../api/client.ts';

type Session = Schemas['TerminalSession'];
type Create = Schemas['TerminalSessionCreate'];
/**
 * Without a size, a terminal that is joined keeps its size. The fields are optional here, because the generated type
 * also requires those with defaults.
 */
export type SessionRequest = Partial<Pick<Create, 'terminal_id' | 'cols' | 'rows'>>;

export type LinkCalls = {
  createSession: (body: SessionRequest) => Promise<Session>;
  /** Throws ApiProblem with status 409 while the machine does not run. */
  listTerminals: () => Promise<{ id: string }[]>;
  openSocket: (session: Session) => WebSocket;
  /** Resolves early when `signal` is aborted. */
  sleep: (ms: number, signal?: AbortSignal) => Promise<void>;
};

export function callsOf(machineId: string): LinkCalls {
  const params = { path: { id: machineId } };
  return {
    createSession: (body) => unwrap(api.POST('/v1/machines/{id}/terminal-session', { params, body: body as Create })),
    listTerminals: async () => (await unwrap(api.GET('/v1/machines/{id}/terminals', { params }))).terminals,
    openSocket: ({ ws_path, ticket }) => {
      const url = new URL(ws_path, location.href);
      url.protocol = url.protocol.replace('http', 'ws');
      url.searchParams.set('ticket', ticket);
      return new WebSocket(url, TERMINAL_PROTOCOL);
    },
    sleep,
  };
}

function sleep(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal?.aborted) return resolve();
    const timer = setTimeout(resolve, ms);
    signal?.addEventListener('abort', () => {
      clearTimeout(timer);
      resolve();
    });
  });
}
