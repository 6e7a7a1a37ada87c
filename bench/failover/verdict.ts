// Compares what was acknowledged with what the database and the host have after all failovers.
import type { Audit } from '@sandbar/contract/admin.ts';
import { connectToPrimary } from '@sandbar/control-plane/db/single.ts';
import { callAdmin } from '../../packages/control-plane/tests/support/admin.ts';
import type { FakeHost } from '../../packages/control-plane/tests/support/fake-host.ts';
import type { Load } from './load.ts';

/** Returns the differences, in words. There should be none. */
export async function findDifferences(
  load: Load,
  host: FakeHost,
  databaseUrl: string,
  adminSocket: string,
): Promise<string[]> {
  const found: string[] = [];
  const client = await connectToPrimary(databaseUrl, {});
  const read = async <T>(text: string) => (await client.query(text)).rows as T[];
  const keys = await read<{ key: string; machine_id: string }>('select key, machine_id from idempotency_keys');
  const machineOf = new Map(keys.map(({ key, machine_id }) => [key, machine_id]));
  for (const [key, id] of load.machines) {
    if (machineOf.get(key) !== id) found.push(`${key}: acknowledged ${id}, recorded ${machineOf.get(key)}`);
  }
  const rows = await read<{ id: string; state: string }>('select id, state from machines');
  const states = new Map(rows.map(({ id, state }) => [id, state]));
  for (const id of load.machines.values()) {
    const wanted = load.deleted.has(id) ? 'destroyed' : 'running';
    if (states.get(id) !== wanted) found.push(`machine ${id} is ${states.get(id)} and not ${wanted}`);
  }
  if (rows.length !== load.machines.size) found.push(`${rows.length} machines for ${load.machines.size} keys`);
  const running = rows.filter(({ state }) => state !== 'destroyed').map(({ id }) => id);
  const onHost = [...host.machines.keys()];
  for (const id of onHost) if (!running.includes(id)) found.push(`the host runs ${id}, which no row knows`);
  for (const id of running) if (!onHost.includes(id)) found.push(`the host does not run ${id}`);

  const references = await read<{ reference: string; n: string }>(
    `select reference, count(*) as n from ledger where kind = 'top-up' and reference like 'client%' group by 1`,
  );
  const counts = new Map(references.map(({ reference, n }) => [reference, Number(n)]));
  for (const reference of load.credits) {
    if (counts.get(reference) !== 1) found.push(`credit ${reference} is there ${counts.get(reference) ?? 0} times`);
  }
  if (counts.size !== load.credits.size) found.push(`${counts.size} credits for ${load.credits.size} acknowledged`);
  const sums = await read<{ id: string }>(
    `select id from accounts a where balance_micros <>
       (select coalesce(sum(amount_micros), 0) from ledger l where l.account_id = a.id)`,
  );
  for (const { id } of sums) found.push(`the balance of account ${id} is not the sum of its ledger`);
  await client.end();

  const { json } = await callAdmin<Audit>(adminSocket, '/admin/audit');
  for (const { area, subject, detail } of json.findings) found.push(`audit: ${area} ${subject}: ${detail}`);
  return found;
}
