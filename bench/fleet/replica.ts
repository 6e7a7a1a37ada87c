// One replica of bench/fleet/create.ts, in a process of its own, with hosts that answer at once. It sends its address to
// the parent process, and on each message the processor time and the statements since the last one.
import { randomBytes } from 'node:crypto';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { readConfig } from '@sandbar/control-plane/config.ts';
import { startControlPlane } from '@sandbar/control-plane/control-plane.ts';
import { createLog } from '@sandbar/control-plane/log.ts';
import { createFakeClient, createFakeHosts, hostIds } from './fake-hosts.ts';

const home = mkdtempSync(join(tmpdir(), 'sandbar-bench-'));
const secret = process.env.BENCH_SECRET ?? randomBytes(32).toString('hex');
const config = readConfig({ ...process.env, SANDBAR_HOME: home, SANDBAR_SECRET: secret }, false);
config.listen.port = 0;
config.metricsListen.port = 0;
const fast = { perSec: 100_000, burst: 100_000 };
config.rates = { ...config.rates, mutating: fast };
// The fake hosts have nothing to reconcile, and send no heartbeat.
config.timing = { ...config.timing, reconcileMs: 3_600_000, reconcileJobsMs: 3_600_000, eventSilenceMs: 3_600_000 };
const ids = hostIds(Number(process.env.BENCH_HOSTS));
const local = createFakeClient(ids[0] ?? '');
const plane = await startControlPlane(config, createLog('info', { write: () => undefined }), {
  local,
  clientOf: () => local,
});
while (plane.app.hosts.reachableIds().length === 0) await delay(20);
plane.app.hosts = createFakeHosts(plane.app.hosts, ids, local);
await plane.reconciler.runOnce();

let before = process.cpuUsage();
process.on('message', () => {
  const { user, system } = process.cpuUsage(before);
  before = process.cpuUsage();
  process.send?.({ cpuMs: (user + system) / 1000, memoryMb: process.memoryUsage().rss / 2 ** 20 });
});
process.on('SIGTERM', async () => {
  await plane.close();
  rmSync(home, { recursive: true, force: true });
  process.exit(0);
});
process.send?.({ port: plane.address.port });
