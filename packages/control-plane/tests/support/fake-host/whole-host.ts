// What a fake host says about itself: its facts, its audit and its stream of events.
import { once } from 'node:events';
import { HOST_PATHS, type HostEvent } from '@sandbar/contract/host-api.ts';
import type { FastifyInstance, FastifyReply } from 'fastify';
import type { Handle } from './calls.ts';
import { type FakeState, reportsOf } from './state.ts';

/**
 * The same interval as a real host's. Without heartbeats the control plane would reopen the event stream and treat the
 * host as disconnected.
 */
const HEARTBEAT_MS = 5_000;

export function addHostRoutes(server: FastifyInstance, host: FakeState, handle: Handle): void {
  server.get(HOST_PATHS.host, (_request, reply) => handle('info', '', reply, () => host.info));
  const audit = () => ({
    findings: host.findings,
    machines: reportsOf(host),
    volumes: [...host.volumes.values()],
    snapshots: [...host.snapshots.values()],
  });
  server.get(HOST_PATHS.audit, (_request, reply) => handle('audit', '', reply, audit));
  server.post(HOST_PATHS.auditFix, (_request, reply) =>
    handle('fixAudit', '', reply, () => {
      const fixed = host.findings.filter((finding) => finding.fixable);
      host.findings = host.findings.filter((finding) => !finding.fixable);
      return { ...audit(), fixed };
    }),
  );
  server.get(HOST_PATHS.events, (_request, reply) => sendEvents(host, reply));
}

/** Sends a report of each machine, then events until the agent stops or the connection ends. */
async function sendEvents(host: FakeState, reply: FastifyReply): Promise<void> {
  reply.hijack();
  const write = (event: HostEvent) => reply.raw.write(`${JSON.stringify(event)}\n`);
  reply.raw.writeHead(200, { 'content-type': 'application/x-ndjson' });
  for (const machine of reportsOf(host)) write({ type: 'machine', machine });
  write({ type: 'synced' });
  host.events.on('event', write);
  const heartbeat = setInterval(() => write({ type: 'heartbeat' }), HEARTBEAT_MS).unref();
  await Promise.race([once(host.events, 'close'), once(reply.raw, 'close')]);
  clearInterval(heartbeat);
  host.events.off('event', write);
  reply.raw.destroy();
}
