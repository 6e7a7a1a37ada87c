// Runs the control plane that bench/get-machine.ts measures, without a host. The database has two accounts with a
// machine each. Sends the parent process the API key of one account and the URLs to request.
import { randomBytes, randomUUID } from 'node:crypto';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { insertAccount } from '@sandbar/control-plane/accounts/store.ts';
import { insertKey } from '@sandbar/control-plane/api-keys/store.ts';
import { readConfig } from '@sandbar/control-plane/config.ts';
import { startControlPlane } from '@sandbar/control-plane/control-plane.ts';
import { createLog } from '@sandbar/control-plane/log.ts';
import { sql } from 'kysely';

const home = mkdtempSync(join(tmpdir(), 'sandbar-bench-'));
const env = { SANDBAR_HOME: home, SANDBAR_SECRET: randomBytes(32).toString('hex') };
const config = readConfig({ ...process.env, ...env }, false);
config.listen.port = 0;
config.metricsListen.port = 0;
// Format the log as the service does, because that takes time too, but discard the lines.
const log = createLog('info', { write: () => undefined });
const plane = await startControlPlane(config, log);
const { db } = plane.app;
const accountId = await insertAccount(db, { email: 'bench@example.test', tier: 'enterprise' });
const key = await insertKey(db, accountId, 'full', 'bench');
const otherId = await insertAccount(db, { email: 'other@example.test', tier: 'enterprise' });
const hostId = randomUUID();
await sql`insert into hosts (id, version, boot_id, isolation, network, subnet, cpus, memory_mb, images)
  values (${hostId}, '0', '0', 'kvm', 'user', '10.0.0.0/24', 1, 1, '[]')`.execute(db);
async function insertMachine(owner: string, address: string): Promise<string> {
  const id = randomUUID();
  await sql`insert into machines (id, account_id, host_id, name, state, generation, vcpus, memory_mb,
      rootfs_size_gb, stack, private_ip, isolation)
    values (${id}, ${owner}, ${hostId}, 'bench', 'running', 1, 1, 1024, 10, 'base', ${address}, 'kvm')`.execute(db);
  return id;
}
const machineId = await insertMachine(accountId, '10.0.0.2');
const foreignId = await insertMachine(otherId, '10.0.0.3');
process.on('SIGTERM', async () => {
  await plane.close();
  rmSync(home, { recursive: true, force: true });
  process.exit(0);
});
const machines = `http://127.0.0.1:${plane.address.port}/v1/machines`;
process.send?.({
  url: `${machines}/${machineId}`,
  foreignUrl: `${machines}/${foreignId}`,
  absentUrl: `${machines}/${randomUUID()}`,
  headers: { authorization: `Bearer ${key}` },
});
