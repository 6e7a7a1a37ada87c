// Connects to terminals as a client does, and keeps what the service sends.
import assert from 'node:assert/strict';
import { TERMINAL_PROTOCOL } from '@sandbar/contract/terminal.ts';
import WebSocket from 'ws';
import type { ControlPlane } from '../../src/control-plane.ts';
import { until } from './postgres.ts';

/** The HTTP answer to a request for a WebSocket that was refused. */
export type Refusal = {
  status: number;
  headers: Record<string, string | string[] | undefined>;
  json: { code: string; detail: string };
};

export type ClientOptions = { isFramed?: boolean; headers?: Record<string, string> };

export class TerminalClient {
  readonly socket: WebSocket;
  /** The data so far, as text. */
  data = '';
  /** The control messages so far. */
  readonly messages: Record<string, unknown>[] = [];
  closed: { code: number; reason: string } | undefined;
  pings = 0;
  /** The headers of the answer that opened the WebSocket, as text. */
  headers = '';

  constructor(socket: WebSocket) {
    this.socket = socket;
    socket.on('message', (bytes: Buffer, isBinary) => {
      if (isBinary) this.data += bytes.toString();
      else this.messages.push(JSON.parse(bytes.toString()));
    });
    socket.once('upgrade', (response) => {
      this.headers = JSON.stringify(response.headers);
    });
    socket.on('ping', () => {
      this.pings++;
    });
    socket.on('error', () => {});
    socket.on('close', (code, reason) => {
      this.closed = { code, reason: reason.toString() };
    });
  }

  type(text: string): void {
    this.socket.send(Buffer.from(text));
  }

  control(message: unknown): void {
    this.socket.send(JSON.stringify(message));
  }

  sees(text: string): Promise<void> {
    return until(() => this.data.includes(text), `the client sees ${text}`);
  }

  async ends(): Promise<{ code: number; reason: string }> {
    await until(() => this.closed !== undefined, 'the connection ends');
    assert(this.closed);
    return this.closed;
  }
}

const urlOf = ({ address }: ControlPlane, machineId: string, ticket: string | undefined): string =>
  `ws://${address.host}:${address.port}/v1/machines/${machineId}/terminal${ticket === undefined ? '' : `?ticket=${ticket}`}`;

/** Asks for a WebSocket, and resolves with it or with the refusal. */
export async function tryConnect(
  plane: ControlPlane,
  machineId: string,
  ticket: string | undefined,
  { isFramed = true, headers = {} }: ClientOptions = {},
): Promise<TerminalClient | Refusal> {
  const url = urlOf(plane, machineId, ticket);
  const socket = new WebSocket(url, isFramed ? [TERMINAL_PROTOCOL] : [], { headers, perMessageDeflate: false });
  const client = new TerminalClient(socket);
  return new Promise((resolve, reject) => {
    socket.once('open', () => resolve(client));
    socket.once('error', reject);
    socket.once('unexpected-response', async (_request, response) => {
      const chunks: Buffer[] = [];
      for await (const chunk of response) chunks.push(chunk as Buffer);
      const json = JSON.parse(Buffer.concat(chunks).toString());
      resolve({ status: response.statusCode ?? 0, headers: response.headers, json });
    });
  });
}

export async function connect(
  plane: ControlPlane,
  machineId: string,
  ticket: string,
  options: ClientOptions = {},
): Promise<TerminalClient> {
  const client = await tryConnect(plane, machineId, ticket, options);
  assert(client instanceof TerminalClient, `refused: ${JSON.stringify(client)}`);
  return client;
}

export async function refusal(
  plane: ControlPlane,
  machineId: string,
  ticket: string | undefined,
  options: ClientOptions = {},
): Promise<Refusal> {
  const answer = await tryConnect(plane, machineId, ticket, options);
  assert(!(answer instanceof TerminalClient), 'the connection was not refused');
  return answer;
}
