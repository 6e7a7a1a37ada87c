// Audits one host: asks the host for problems in its own records, and compares its machines, volumes and snapshots with
// the database.
import type { HostFinding } from '@sandbar/contract/host-api.ts';
import { sql } from 'kysely';
import type { App } from '../app.ts';
import type { HostRow } from '../db/tables.ts';
import { isNoExpiry } from '../operations/store.ts';
import type { Finding } from './finding.ts';
import { type AuditedMachine, compareMachines } from './machines.ts';
import { type AuditedSnapshot, compareSnapshots } from './snapshots.ts';
import { type AuditedVolume, compareVolumes } from './volumes.ts';

export type HostLook = { findings: Finding[]; machines: number; volumes: number; snapshots: number };

/**
 * Audits a host once. Returns the findings, and how many machines, volumes and snapshots were compared. Throws the
 * host's refusal and `host_unavailable`.
 */
export async function lookAtHost(app: App, host: HostRow): Promise<HostLook> {
  const volumeRows = await listAuditedVolumes(app, host.id);
  const snapshotRows = await listAuditedSnapshots(app, host.id);
  const { findings, machines, volumes, snapshots } = await app.hosts.client(host.id).audit();
  const reportedIds = machines.map((report) => report.machine_id);
  const rows: AuditedMachine[] = await app.db
    .selectFrom('machines')
    .selectAll()
    .select(isBusy('machines', 'machine_id').as('isBusy'))
    .where('host_id', '=', host.id)
    .where((is) => is.or([is('state', '<>', 'destroyed'), is('id', '=', is.fn.any(is.val(reportedIds)))]))
    .execute();
  const beingKept = await listBeingKept(app, host.id);
  const copies = await listCopies(app);
  const own = new Set(rows.map((row) => row.id));
  const isCopy = (machineId: string) => copies.has(machineId) && !own.has(machineId);
  return {
    findings: [
      ...findings.map((finding) => ofHost(host.id, finding)),
      ...compareMachines(
        host,
        rows,
        machines.filter(({ machine_id }) => !isCopy(machine_id)),
      ),
      ...compareVolumes(host, volumeRows, new Set([...beingKept, ...copies]), volumes),
      ...compareSnapshots(
        host,
        snapshotRows,
        snapshots.filter(({ machine_id }) => !isCopy(machine_id)),
      ),
    ],
    machines: rows.filter((row) => row.state !== 'destroyed').length,
    volumes: volumeRows.length,
    snapshots: snapshotRows.length,
  };
}

/** SQL condition: the row has an unfinished operation (other than an expiry). */
const isBusy = (table: string, column: string) => sql<boolean>`exists (
  select from operations
  where operations.${sql.ref(column)} = ${sql.ref(`${table}.id`)} and finished_at is null and ${isNoExpiry})`;

/** Returns the ids of the volumes that unfinished destroy operations will create from root disks. */
async function listBeingKept(app: App, hostId: string): Promise<Set<string>> {
  const rows = await app.db
    .selectFrom('operations')
    .select(sql<string | null>`args ->> 'keep_volume_id'`.as('id'))
    .where('host_id', '=', hostId)
    .where('finished_at', 'is', null)
    .execute();
  return new Set(rows.flatMap(({ id }) => (id === null ? [] : [id])));
}

/** Returns the ids of the machines and volumes that are on a second host, because they move or have moved. */
async function listCopies(app: App): Promise<Set<string>> {
  const { rows } = await sql<{ id: string }>`
    select copy ->> 'id' as id from operations, jsonb_array_elements(args -> 'copies') as copy
    where kind in ('move', 'remove_copy') and finished_at is null`.execute(app.db);
  return new Set(rows.map(({ id }) => id));
}

function listAuditedVolumes(app: App, hostId: string): Promise<AuditedVolume[]> {
  return app.db
    .selectFrom('volumes')
    .selectAll()
    .select(
      sql<boolean>`${isBusy('volumes', 'volume_id')} or exists (
      select from operations
      where operations.machine_id = volumes.machine_id and finished_at is null and ${isNoExpiry})`.as('isBusy'),
    )
    .where('host_id', '=', hostId)
    .execute();
}

function listAuditedSnapshots(app: App, hostId: string): Promise<AuditedSnapshot[]> {
  return app.db
    .selectFrom('snapshots')
    .selectAll()
    .select(isBusy('snapshots', 'snapshot_id').as('isBusy'))
    .where('host_id', '=', hostId)
    .execute();
}

/**
 * Converts a problem that the host reported itself. The repair is a single host call that repairs all such problems of
 * the host at once.
 */
function ofHost(hostId: string, { kind, subject, detail, fixable }: HostFinding): Finding {
  const finding: Finding = { area: 'host', hostId, subject, detail, key: `host/${hostId}/${kind}/${subject}` };
  if (!fixable) return finding;
  const run = (app: App) => app.hosts.client(hostId).fixAudit();
  return { ...finding, mend: { fix: 'have its host mend it', did: 'its host mended it', run } };
}
