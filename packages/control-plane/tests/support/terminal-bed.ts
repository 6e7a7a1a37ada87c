// A test bed of two replicas with machines, whose terminals are fakes, and the connections that a test opens to them.
import assert from 'node:assert/strict';
import { after, beforeEach } from 'node:test';
import type { TerminalSession } from '@sandbar/contract/terminal.ts';
import type { Timing } from '../../src/config.ts';
import { FakeTerminals } from './fake-terminals.ts';
import { connect, type TerminalClient } from './terminal-client.ts';
import { startTestBed } from './test-bed.ts';

/** Long enough that no client of a busy machine is taken for dead. */
const HEARTBEAT_MS = 30_000;

export async function startTerminalBed(places = 10, timing: Partial<Timing> = {}) {
  const bed = await startTestBed({
    replicas: 2,
    bounds: { terminalsPerAccount: places },
    timing: { streamHeartbeatMs: HEARTBEAT_MS, ...timing },
  });
  const { api, plane } = bed;
  const [, second = plane] = bed.replicas;
  const { db } = plane.app;
  const terminals = new FakeTerminals(bed.host);
  const machine: string = (await api('POST', '/v1/machines', { body: { env: { FROM: 'machine', BOTH: 'machine' } } }))
    .json.id;
  const other: string = (await api('POST', '/v1/machines')).json.id;
  const stopped: string = (await api('POST', '/v1/machines')).json.id;
  await api('POST', `/v1/machines/${stopped}/stop`);

  const session = async (body: object = {}, on = machine, key = bed.keys.full): Promise<TerminalSession> => {
    const answer = await api('POST', `/v1/machines/${on}/terminal-session`, { body, key });
    assert.equal(answer.status, 201, answer.text);
    return answer.json as TerminalSession;
  };
  const ticketOf = async (body: object = {}, on = machine): Promise<string> => (await session(body, on)).ticket;
  /** The connections of the current test, which are closed after it. */
  const clients: { socket: { terminate(): void } }[] = [];
  const open = async (body: object = {}, options = {}, on = plane): Promise<{ client: TerminalClient; id: string }> => {
    const { ticket, terminal_id } = await session(body);
    const client = await connect(on, machine, ticket, options);
    clients.push(client);
    return { client, id: terminal_id };
  };

  beforeEach(async () => {
    for (const { socket } of clients.splice(0)) socket.terminate();
    terminals.all.clear();
    terminals.calls.length = 0;
  });
  after(() => {
    for (const { socket } of clients) socket.terminate();
  });
  return { bed, api, plane, second, db, terminals, machine, other, stopped, session, ticketOf, clients, open };
}
