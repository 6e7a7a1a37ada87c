// Compares the volumes of one host with their rows. Pure functions.
import type { HostVolume } from '@sandbar/contract/host-api.ts';
import type { HostRow, VolumeRow } from '../db/tables.ts';
import { isOfThisDatabase } from '../reconcilers/unknown.ts';
import { findVolumeAgain, LOST_DISK, loseVolume, removeUnknownVolume } from '../reconcilers/volumes.ts';
import type { Finding, Mend } from './finding.ts';

/** A volume's row, and whether the volume or its machine has an unfinished operation. */
export type AuditedVolume = VolumeRow & { isBusy: boolean };

/**
 * Returns the differences. `rows` must contain all volumes of the host, read before the host was asked for `volumes`.
 * `beingKept`: ids of volumes that unfinished destroy operations will create from root disks.
 */
export function compareVolumes(
  host: Pick<HostRow, 'id' | 'created_at'>,
  rows: readonly AuditedVolume[],
  beingKept: ReadonlySet<string>,
  volumes: readonly HostVolume[],
): Finding[] {
  const known = new Set(rows.map((row) => row.id));
  const present = new Map(volumes.map((volume) => [volume.volume_id, volume]));
  const unknown = volumes.filter(({ volume_id }) => !known.has(volume_id) && !beingKept.has(volume_id));
  return [
    ...unknown.map((volume) => unknownOnHost(host, volume)),
    ...rows.flatMap((row) => differenceOf(row, present.get(row.id))),
  ];
}

function unknownOnHost(host: Pick<HostRow, 'id' | 'created_at'>, { volume_id: id, size_gb }: HostVolume): Finding {
  const about = { area: 'volume', hostId: host.id, subject: id, key: `unknown-volume/${id}` } as const;
  if (!isOfThisDatabase(id, host.created_at)) {
    const detail = `Its host has its disk (${size_gb} GB), and this database never gave its id away.`;
    return { ...about, detail };
  }
  return {
    ...about,
    detail: `Its host has its disk (${size_gb} GB), and no account does.`,
    mend: {
      fix: 'remove the disk from its host',
      did: 'removed the disk from its host',
      run: (app) => removeUnknownVolume(app, host.id, id),
    },
  };
}

function differenceOf(row: AuditedVolume, volume: HostVolume | undefined): Finding[] {
  const about = { area: 'volume', hostId: row.host_id, subject: row.id } as const;
  const key = (what: string) => `volume/${row.id}/${row.state}/${what}`;
  if (row.isBusy) return [];
  if (row.state === 'creating' || row.state === 'deleting' || row.state === 'taken') {
    return [{ ...about, key: key(row.state), detail: `It is ${row.state}, and no operation of it is under way.` }];
  }
  if (!volume && row.state !== 'error') {
    const mend: Mend = { fix: 'mark it as lost', did: 'marked it as lost', run: (app) => loseVolume(app, row) };
    return [{ ...about, key: key('lost'), detail: `It is ${row.state}, and its host does not have its disk.`, mend }];
  }
  if (volume && row.error === LOST_DISK) {
    const mend: Mend = { fix: 'take it back', did: 'took it back', run: (app) => findVolumeAgain(app, row) };
    return [{ ...about, key: key('found'), detail: 'It was lost, and its host has its disk again.', mend }];
  }
  if (volume && (volume.size_gb !== row.size_gb || volume.kind !== row.kind)) {
    const detail = `It is a ${row.kind} disk of ${row.size_gb} GB, and a ${volume.kind} disk of ${volume.size_gb} GB on its host.`;
    return [{ ...about, key: key('shape'), detail }];
  }
  return [];
}
