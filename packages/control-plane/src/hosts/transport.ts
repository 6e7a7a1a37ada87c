// HTTP over the agent's Unix socket. Node's own client does it: the process is to stay small, and keep-alive connections
// without a limit (long polls must never keep a start waiting) are all that is needed.
import { Agent, type IncomingHttpHeaders, type IncomingMessage, request } from 'node:http';

export type Call = {
  method: 'GET' | 'PUT' | 'POST' | 'DELETE';
  path: string;
  query?: Record<string, string | number>;
  body?: unknown;
  /** For the whole exchange, headers and body; a stream has none. */
  timeoutMs?: number;
  signal?: AbortSignal | undefined;
};

export type Answer = { status: number; headers: IncomingHttpHeaders; body: IncomingMessage };

export type Transport = {
  /** Sends one request; a connection that broke is tried once more. Rejects with the error of the socket. */
  send(call: Call): Promise<Answer>;
  /** Ends what is under way; nothing can be sent after it. */
  close(): void;
};

/** Shorter than the 72 s after which the agent's server closes an idle connection. */
const KEEP_IDLE_MS = 60_000;

export function createTransport(socketPath: string): Transport {
  const agent = new Agent({ keepAlive: true, timeout: KEEP_IDLE_MS });
  const closed = new AbortController();
  return {
    send: async (call) => {
      const timeout = call.timeoutMs === undefined ? undefined : AbortSignal.timeout(call.timeoutMs);
      const signals = [closed.signal, call.signal, timeout].filter((signal) => signal !== undefined);
      const signal = AbortSignal.any(signals);
      try {
        return await sendOnce(agent, socketPath, call, signal);
      } catch (error) {
        // A keep-alive connection may be closed by the agent in the moment it is used again.
        if (!isBroken(error)) throw error;
        return await sendOnce(agent, socketPath, call, signal).catch((second: unknown) => {
          // An agent that died of the first one may have acted on it, though nobody listens to the second.
          throw wasNeverSent(second) ? error : second;
        });
      }
    },
    close: () => {
      closed.abort();
      agent.destroy();
    },
  };
}

function sendOnce(agent: Agent, socketPath: string, call: Call, signal: AbortSignal): Promise<Answer> {
  const body = call.body === undefined ? undefined : Buffer.from(JSON.stringify(call.body));
  const query = writeQuery(call.query);
  return new Promise((resolve, reject) => {
    const outgoing = request({
      agent,
      socketPath,
      method: call.method,
      path: call.path + query,
      headers: {
        host: 'host-agent',
        ...(body ? { 'content-type': 'application/json', 'content-length': body.length } : {}),
      },
      signal,
    });
    // The agent's time-out is for idle connections; a call has its own.
    outgoing.setTimeout(0);
    outgoing.once('response', (response) =>
      resolve({ status: response.statusCode ?? 0, headers: response.headers, body: response }),
    );
    outgoing.on('error', reject);
    outgoing.end(body);
  });
}

function writeQuery(query: Call['query']): string {
  if (!query) return '';
  const parameters = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) parameters.set(name, String(value));
  return `?${parameters}`;
}

/** The body as bytes. Rejects when the connection breaks in between. */
export async function readBytes(answer: Answer): Promise<Buffer> {
  const chunks: Buffer[] = [];
  for await (const chunk of answer.body) chunks.push(chunk as Buffer);
  const [first] = chunks;
  return chunks.length === 1 && first ? first : Buffer.concat(chunks);
}

export const codeOf = (error: unknown): string =>
  error instanceof Error && 'code' in error && typeof error.code === 'string' ? error.code : '';

const isBroken = (error: unknown): boolean => ['ECONNRESET', 'EPIPE'].includes(codeOf(error));

/** Whether a request certainly reached nobody. */
export const wasNeverSent = (error: unknown): boolean => ['ECONNREFUSED', 'ENOENT', 'EACCES'].includes(codeOf(error));
