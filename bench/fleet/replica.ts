// One replica of bench/fleet/create.ts, in a process of its own, whose hosts are functions that answer at once.
import { setTimeout as delay } from 'node:timers/promises';
import { readConfig } from '@sandbar/control-plane/config.ts';
import { startControlPlane } from '@sandbar/control-plane/control-plane.ts';
import { createLog } from '@sandbar/control-plane/log.ts';
import { createFakeClient, createFakeHosts, hostIds } from './fake-hosts.ts';

const config = readConfig(process.env, false);
// The fake hosts have nothing to reconcile, and send no heartbeat.
config.timing = { ...config.timing, reconcileMs: 3_600_000, reconcileJobsMs: 3_600_000, eventSilenceMs: 3_600_000 };
const ids = hostIds(Number(process.env.BENCH_HOSTS));
const local = createFakeClient(ids[0] ?? '');
const plane = await startControlPlane(config, createLog('info'), { local, clientOf: () => local });
while (plane.app.hosts.reachableIds().length === 0) await delay(20);
plane.app.hosts = createFakeHosts(plane.app.hosts, ids, local);
await plane.reconciler.runOnce();

process.on('SIGTERM', async () => {
  await plane.close();
  process.exit(0);
});
process.send?.({ type: 'ready' });
