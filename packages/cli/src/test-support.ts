// For tests: runs the CLI as a user does, against a small HTTP server that stands in for the API.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer, type IncomingHttpHeaders, type ServerResponse } from 'node:http';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after } from 'node:test';

export const CLI = path.resolve(import.meta.dirname, '../bin/sandbar.mjs');

export type Call = { method: string; url: string; headers: IncomingHttpHeaders; body: Buffer };
export type Handler = (call: Call, response: ServerResponse) => void;

/** Starts a server that stops after the test file. `answer` gets each request with its whole body. */
export async function startServer(answer: Handler): Promise<string> {
  const server = createServer(async (request, response) => {
    const body = Buffer.concat(await request.toArray());
    answer({ method: request.method ?? '', url: request.url ?? '', headers: request.headers, body }, response);
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  after(() => {
    server.closeAllConnections();
    server.close();
  });
  const address = server.address();
  assert.ok(typeof address === 'object' && address !== null);
  return `http://127.0.0.1:${address.port}`;
}

export function answerJson(response: ServerResponse, status: number, body: object): void {
  response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body));
}

/** Makes a folder that is removed after the test file. */
export function makeFolder(): string {
  const folder = mkdtempSync(path.join(tmpdir(), 'sandbar-cli-'));
  after(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

/** This process's environment without SANDBAR_ variables, plus `more`. The value undefined removes a variable. */
export function environment(more: Record<string, string | undefined>): NodeJS.ProcessEnv {
  const inherited = Object.entries(process.env).filter(([name]) => !name.startsWith('SANDBAR_'));
  return { ...Object.fromEntries(inherited), SANDBAR_HOME: '/nowhere/sandbar', ...more };
}

export type Ended = { code: number | null; stdout: Buffer; stderr: string };

/** Runs a program to its end, with `input` as its standard input. */
export async function run(program: string, args: string[], env: NodeJS.ProcessEnv, input = ''): Promise<Ended> {
  const child = spawn(program, args, { env });
  // Ignore the error when the program ends without reading its input.
  child.stdin.on('error', () => undefined);
  child.stdin.end(input);
  const [out, error, [code]] = await Promise.all([
    child.stdout.toArray(),
    child.stderr.toArray(),
    once(child, 'close'),
  ]);
  return { code, stdout: Buffer.concat(out), stderr: Buffer.concat(error).toString() };
}

/** Runs the CLI to its end. Returns what it wrote as text. */
export async function runCli(
  args: string[],
  env: NodeJS.ProcessEnv,
): Promise<Omit<Ended, 'stdout'> & { stdout: string }> {
  const ended = await run(process.execPath, [CLI, ...args], env);
  return { ...ended, stdout: ended.stdout.toString() };
}
