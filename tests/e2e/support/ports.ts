// Requests to ports of machines, sent to the service with the host name of the port.
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { type IncomingMessage, request as openRequest, type RequestOptions } from 'node:http';
import { connect, type Socket } from 'node:net';
import { API_KEY, BASE_URL, startExec, until } from './service.ts';

const PROGRAM = readFileSync(new URL('./port-program.py', import.meta.url), 'utf8');
const service = new URL(BASE_URL);

/** The host name of a port, with the port of the service. */
export const hostOf = (machineId: string, port: number): string => `${port}-${machineId}.localhost:${service.port}`;

/** Opens a request to a port with the API key. The caller ends it. */
export function openPort(machineId: string, port: number, options: RequestOptions = {}) {
  const headers = { host: hostOf(machineId, port), 'x-sandbar-key': API_KEY, ...(options.headers as object) };
  return openRequest({ host: service.hostname, port: service.port, agent: false, ...options, headers });
}

export type Visit = { status: number; text: string; headers: IncomingMessage['headers'] };

export async function visit(machineId: string, port: number, options: RequestOptions = {}, body = ''): Promise<Visit> {
  const request = openPort(machineId, port, options);
  request.end(body);
  const [response] = (await once(request, 'response')) as [IncomingMessage];
  const text = Buffer.concat(await response.toArray()).toString();
  return { status: response.statusCode ?? 0, text, headers: response.headers };
}

/** Opens a connection to the service on which a test writes bytes of its own. */
export function connectToService(): Socket {
  return connect(Number(service.port), service.hostname).on('error', () => undefined);
}

/** Sends bytes to the service, and returns everything that comes until the connection ends. */
export async function exchange(bytes: string): Promise<string> {
  const socket = connectToService();
  let text = '';
  socket.on('data', (chunk) => {
    text += chunk.toString('latin1');
  });
  socket.write(bytes, 'latin1');
  // Not `once`: the service may reset a connection whose bytes it has not read.
  await new Promise((resolve) => socket.on('close', resolve));
  return text;
}

/** Starts the program of support/port-program.py and waits until it answers. */
export async function startProgram(machineId: string, port: number, address = '0.0.0.0'): Promise<void> {
  await startExec(machineId, { argv: ['python3', '-c', PROGRAM, address, String(port)] });
  await until('the program answers', async () => (await visit(machineId, port)).status === 200);
}
