// Plays many hosts in one process, each on a Unix socket of its own: `hosts.ts FOLDER HOSTS MACHINES_OF_EACH`. Their
// machines run and do nothing. Sends a message when all sockets listen.
import { createServer, type ServerResponse } from 'node:http';
import { join } from 'node:path';
import { HOST_PATHS, type HostInfo, type MachineReport } from '@sandbar/contract/host-api.ts';
import { hostIdOf, machineIdOf, socketOf } from './ids.ts';

const HEARTBEAT_MS = 5_000;
const [folder = '', hostCount = '0', machineCount = '0'] = process.argv.slice(2);

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
  };
}

function reportsOf(host: number): MachineReport[] {
  const count = Number(machineCount);
  return Array.from({ length: count }, (_, index) => ({
    ...{ machine_id: machineIdOf(host * count + index), generation: 1, status: 'running', reason: null },
    ...{ isolation: 'kvm', private_ip: `10.83.${index >> 8}.${index & 255}`, output_revision: null },
  }));
}

function sendEvents(reports: readonly MachineReport[], response: ServerResponse): void {
  response.writeHead(200, { 'content-type': 'application/x-ndjson' });
  for (const machine of reports) response.write(`${JSON.stringify({ type: 'machine', machine })}\n`);
  response.write('{"type":"synced"}\n');
  const beat = setInterval(() => response.write('{"type":"heartbeat"}\n'), HEARTBEAT_MS);
  response.once('close', () => clearInterval(beat));
}

async function serve(host: number): Promise<void> {
  const reports = reportsOf(host);
  const bodies: Record<string, string> = {
    [HOST_PATHS.host]: JSON.stringify(infoOf(host)),
    [HOST_PATHS.machines]: JSON.stringify({ boot_id: 'boot-1', machines: reports }),
    [HOST_PATHS.volumes]: '{"volumes":[]}',
    [HOST_PATHS.snapshots]: '{"snapshots":[]}',
  };
  const server = createServer({ keepAliveTimeout: 72_000 }, ({ url = '' }, response) => {
    if (url === HOST_PATHS.events) return sendEvents(reports, response);
    const body = bodies[url];
    response.writeHead(body === undefined ? 404 : 200, { 'content-type': 'application/json' });
    response.end(body ?? '{"code":"not_found","detail":"Nothing is here."}');
  });
  await new Promise<void>((resolve) => server.listen(join(folder, socketOf(host)), resolve));
}

for (let host = 0; host < Number(hostCount); host++) await serve(host);
process.send?.('ready');
process.on('disconnect', () => process.exit(0));
