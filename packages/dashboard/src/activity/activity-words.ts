// The texts with which the activity feed shows the API's entries.
import type { Schemas } from '../api/client.ts';

export type Entry = Schemas['ActivityEntry'];

export const CATEGORIES = ['machine', 'volume', 'snapshot', 'exec'] as const;
export type Category = (typeof CATEGORIES)[number];

export const CATEGORY_LABELS: Record<Category, string> = {
  machine: 'Machines',
  volume: 'Volumes',
  snapshot: 'Snapshots',
  exec: 'Jobs',
};

export const ACTION_LABELS: Record<Entry['action'], string> = {
  'machine.created': 'Machine created',
  'machine.started': 'Machine started',
  'machine.stopped': 'Machine stopped',
  'machine.destroyed': 'Machine destroyed',
  exec: 'Job ended',
  'volume.created': 'Volume created',
  'volume.attached': 'Volume attached',
  'volume.detached': 'Volume detached',
  'volume.deleted': 'Volume deleted',
  'snapshot.created': 'Snapshot taken',
  'snapshot.restored': 'Snapshot restored',
  'snapshot.deleted': 'Snapshot deleted',
};

export const ACTOR_LABELS: Record<Entry['actor'], string> = {
  user: 'You',
  'system:spend_guard': 'Service: empty wallet',
  'system:reclaimer': 'Service: empty wallet for too long',
  'system:expiry': 'Service: it expired',
  'system:host': 'The machine or its host',
  'system:operator': 'Operator: service stopped',
};

type Value = Entry['metadata'][string];
type ShowId = (id: string) => string;

const DETAILS: Record<string, (value: Value, showId: ShowId) => string> = {
  stack: (value) => `${value}`,
  vcpus: (value) => `${value} vCPU`,
  memory_mb: (value) => `${value} MiB`,
  rootfs_gb: (value) => `${value} GiB`,
  preserve_storage: (value) => (value === true ? 'disk kept' : 'disk deleted'),
  snapshots_deleted: (value) => (value === 0 ? '' : `${value} snapshots deleted`),
  exit_code: (value) => (value === null ? 'no exit code' : `exit code ${value}`),
  timeout_sec: (value) => `limit ${value} s`,
  size_gb: (value) => `${value} GiB`,
  volume_id: (value, showId) => `volume ${showId(String(value))}`,
  snapshot_id: (value, showId) => `snapshot ${showId(String(value))}`,
};

/** The metadata of an entry, such as "exit code 0, limit 3600 s". A key that is not known here is shown as it is. */
export function describeMetadata({ metadata }: Entry, showId: ShowId = (id) => id): string {
  return Object.entries(metadata)
    .map(([key, value]) => DETAILS[key]?.(value, showId) ?? `${key} ${value}`)
    .filter((text) => text !== '')
    .join(', ');
}

const DAY = { month: 'short', day: 'numeric', hour: '2-digit', minute: '2-digit', second: '2-digit' } as const;
const thisYear = new Intl.DateTimeFormat('en', { ...DAY, hourCycle: 'h23' });
const otherYear = new Intl.DateTimeFormat('en', { ...DAY, year: 'numeric', hourCycle: 'h23' });

/** Formats a time such as "Nov 23, 10:10:54" in the browser's time zone. Adds the year unless it is this year. */
export function clockTime(at: string): string {
  const date = new Date(at);
  return (date.getFullYear() === new Date().getFullYear() ? thisYear : otherYear).format(date);
}
