// Plays many hosts in one process, each at a port of its own with the certificate of its host: `hosts.ts FILE`. Their
// machines run and do nothing, and new ones run at once. FILE has the certificates; see `HostsFile`. Sends the ports when all
// listen, and answers a message with how many event streams are open.
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { createServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { json } from 'node:stream/consumers';
import { type EnsureMachine, HOST_PATHS, type HostInfo, type MachineReport } from '@sandbar/contract/host-api.ts';
import { hostIdOf, machineIdOf } from './ids.ts';

/** PEM. `certificates`: one of each host, for the same key. */
export type HostsFile = { key: string; authority: string; certificates: string[]; machinesOfHost: number };

const HEARTBEAT_MS = 5_000;
const { key, authority, certificates, machinesOfHost } = JSON.parse(
  readFileSync(process.argv[2] ?? '', 'utf8'),
) as HostsFile;
let streams = 0;
let addresses = 0;

function infoOf(host: number): HostInfo {
  return {
    ...{ host_id: hostIdOf(host), version: '0.0.0', boot_id: 'boot-1', isolation: 'kvm', network: 'user' },
    ...{ subnet: '10.83.0.0/16', cpus: 64, memory_mb: 1_048_576 },
    disk: { total_mb: 104_857_600, free_mb: 104_857_600, reserve_mb: 2_048 },
    images: [
      {
        ...{ stack: 'base', description: 'For the benchmark.', digest: `sha256:${'0'.repeat(64)}` },
        ...{ architecture: 'x86_64', min_rootfs_gb: 2, default: true, created_at: '2026-01-01T00:00:00.000Z' },
      },
    ],
    templates: [{ stack: 'base', vcpus: 1, memory_mb: 1024 }],
  };
}

function reportsOf(host: number): MachineReport[] {
  return Array.from({ length: machinesOfHost }, (_, index) => ({
    ...{ machine_id: machineIdOf(host * machinesOfHost + index), generation: 1, status: 'running', reason: null },
    ...{ isolation: 'kvm', private_ip: `10.83.${index >> 8}.${index & 255}`, output_revision: null },
  }));
}

const eventOf = (machine: MachineReport) => `${JSON.stringify({ type: 'machine', machine })}\n`;

function sendEvents(reports: Iterable<MachineReport>, response: ServerResponse): void {
  response.writeHead(200, { 'content-type': 'application/x-ndjson' });
  response.flushHeaders();
  for (const report of reports) response.write(eventOf(report));
  response.write('{"type":"synced"}\n');
  const beat = setInterval(() => response.write('{"type":"heartbeat"}\n'), HEARTBEAT_MS);
  streams++;
  response.once('close', () => {
    clearInterval(beat);
    streams--;
  });
}

async function ensure(id: string, request: IncomingMessage): Promise<MachineReport> {
  const { generation, desired, spec } = (await json(request)) as EnsureMachine;
  const number = addresses++;
  const leased = `10.${(number >> 16) & 255}.${(number >> 8) & 255}.${number & 255}`;
  return {
    ...{ machine_id: id, generation, status: desired, reason: null, isolation: 'kvm' },
    ...{ private_ip: spec.private_ip ?? leased, output_revision: null },
  };
}

async function serve(host: number): Promise<number> {
  const machines = new Map(reportsOf(host).map((report) => [report.machine_id, report]));
  const bodies: Record<string, () => unknown> = {
    [HOST_PATHS.host]: () => infoOf(host),
    [HOST_PATHS.machines]: () => ({ boot_id: 'boot-1', machines: [...machines.values()] }),
    [HOST_PATHS.volumes]: () => ({ volumes: [] }),
    [HOST_PATHS.snapshots]: () => ({ snapshots: [] }),
  };
  const listeners = new Set<ServerResponse>();
  const answer = async (request: IncomingMessage) => {
    const { method, url = '' } = request;
    if (method !== 'PUT') return bodies[url]?.();
    const id = url.split('/').at(-1) ?? '';
    const report = await ensure(id, request);
    machines.set(id, report);
    for (const listener of listeners) listener.write(eventOf(report));
    return report;
  };
  const tls = { key, cert: certificates[host], ca: authority, minVersion: 'TLSv1.3' as const };
  const options = { ...tls, requestCert: true, ALPNProtocols: ['http/1.1'], keepAliveTimeout: 72_000, noDelay: true };
  const server = createServer(options, async (request, response) => {
    if (request.url === HOST_PATHS.events) {
      listeners.add(response);
      response.once('close', () => listeners.delete(response));
      return sendEvents(machines.values(), response);
    }
    const body = await answer(request);
    response.writeHead(body === undefined ? 404 : 200, { 'content-type': 'application/json' });
    response.end(JSON.stringify(body ?? { code: 'not_found', detail: 'Nothing is here.' }));
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return (server.address() as AddressInfo).port;
}

const ports: number[] = [];
for (let host = 0; host < certificates.length; host++) ports.push(await serve(host));
process.on('message', () => process.send?.(streams));
process.on('disconnect', () => process.exit(0));
process.send?.(ports);
