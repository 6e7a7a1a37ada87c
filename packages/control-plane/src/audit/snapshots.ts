// Compares the snapshots of one host with their rows. Pure functions.
import type { HostSnapshot } from '@sandbar/contract/host-api.ts';
import type { HostRow, SnapshotRow } from '../db/tables.ts';
import { findSnapshotAgain, LOST_SNAPSHOT, loseSnapshot, removeUnknownSnapshot } from '../reconcilers/snapshots.ts';
import { isOfThisDatabase } from '../reconcilers/unknown.ts';
import type { Finding, Mend } from './finding.ts';

/** A snapshot's row, and whether the snapshot has an unfinished operation. */
export type AuditedSnapshot = SnapshotRow & { isBusy: boolean };

/**
 * Returns the differences. `rows` must contain all snapshots of the host, read before the host was asked for
 * `snapshots`.
 */
export function compareSnapshots(
  host: Pick<HostRow, 'id' | 'created_at'>,
  rows: readonly AuditedSnapshot[],
  snapshots: readonly HostSnapshot[],
): Finding[] {
  const known = new Set(rows.map((row) => row.id));
  const present = new Map(snapshots.map((snapshot) => [snapshot.snapshot_id, snapshot]));
  const unknown = snapshots.filter(({ snapshot_id }) => !known.has(snapshot_id));
  return [
    ...unknown.map((snapshot) => unknownOnHost(host, snapshot)),
    ...rows.flatMap((row) => differenceOf(row, present.get(row.id))),
  ];
}

function unknownOnHost(host: Pick<HostRow, 'id' | 'created_at'>, { snapshot_id: id }: HostSnapshot): Finding {
  const about = { area: 'snapshot', hostId: host.id, subject: id, key: `unknown-snapshot/${id}` } as const;
  if (!isOfThisDatabase(id, host.created_at)) {
    return { ...about, detail: 'Its host has it, and this database never gave its id away.' };
  }
  return {
    ...about,
    detail: 'Its host has it, and no account does.',
    mend: {
      fix: 'remove it from its host',
      did: 'removed it from its host',
      run: (app) => removeUnknownSnapshot(app, host.id, id),
    },
  };
}

function differenceOf(row: AuditedSnapshot, snapshot: HostSnapshot | undefined): Finding[] {
  const about = { area: 'snapshot', hostId: row.host_id, subject: row.id } as const;
  const key = (what: string) => `snapshot/${row.id}/${row.state}/${what}`;
  if (row.state === 'creating' || row.state === 'deleting') {
    if (row.isBusy) return [];
    return [{ ...about, key: key(row.state), detail: `It is ${row.state}, and no operation of it is under way.` }];
  }
  if (!snapshot && row.state === 'ready') {
    const mend: Mend = { fix: 'mark it as lost', did: 'marked it as lost', run: (app) => loseSnapshot(app, row) };
    return [{ ...about, key: key('lost'), detail: 'It is ready, and its host does not have it.', mend }];
  }
  if (snapshot && row.error === LOST_SNAPSHOT) {
    const mend: Mend = { fix: 'take it back', did: 'took it back', run: (app) => findSnapshotAgain(app, row) };
    return [{ ...about, key: key('found'), detail: 'It was lost, and its host has it again.', mend }];
  }
  if (snapshot && (snapshot.size_gb !== row.size_gb || snapshot.kind !== row.kind)) {
    const detail = `It is a ${row.kind} snapshot of ${row.size_gb} GB, and a ${snapshot.kind} snapshot of ${snapshot.size_gb} GB on its host.`;
    return [{ ...about, key: key('shape'), detail }];
  }
  return [];
}
