// The values of the form for a new machine, and the request that is made from them.
import { EXPIRY_ACTIONS, type ExpiryAction, MACHINE_DEFAULTS } from '@sandbar/contract/machine-states.ts';
import type { Schemas } from '../api/client.ts';
import { objectOf, type Row } from './key-values.ts';
import type { Source } from './search.ts';

/** The schema's type demands the fields that have defaults; a request may leave them out. */
export type CreateBody = Partial<Schemas['MachineCreate']>;

/** Seconds of each unit in which a person may write an expiry. */
export const UNIT_SEC = { seconds: 1, minutes: 60, hours: 3_600, days: 86_400 } as const;
export type Unit = keyof typeof UNIT_SEC;

/** `count`: as the person wrote it, so perhaps no number; empty when there is none. */
export type Expiry = { count: string; unit: Unit; action: ExpiryAction };

export type CreateValues = {
  name: string;
  vcpus: string;
  memory_mb: string;
  rootfs_size_gb: string;
  source: Source;
  stack: string;
  snapshot_id: string;
  root_volume_id: string;
  env: Row[];
  metadata: Row[];
  expiry: Expiry;
};

/** What a machine can boot from. */
export type Sources = {
  images: readonly Schemas['Image'][];
  snapshots: readonly Schemas['Snapshot'][];
  disks: readonly Schemas['Volume'][];
};

export type Boot = { minGb: number; defaultGb: number; isMemory: boolean; heldGb: number };

/** The sizes that the chosen source allows. `heldGb`: the storage quota that the source uses already. */
export function bootOf(values: CreateValues, { images, snapshots, disks }: Sources): Boot {
  const asIs = { defaultGb: MACHINE_DEFAULTS.rootfs_size_gb, isMemory: false, heldGb: 0 };
  if (values.source === 'disk') {
    const size = disks.find(({ id }) => id === values.root_volume_id)?.size_gb ?? 1;
    return { ...asIs, minGb: size, defaultGb: size, heldGb: size };
  }
  if (values.source === 'snapshot') {
    const snapshot = snapshots.find(({ id }) => id === values.snapshot_id);
    const size = snapshot?.size_gb ?? 1;
    return { ...asIs, minGb: size, defaultGb: Math.max(size, asIs.defaultGb), isMemory: snapshot?.kind === 'memory' };
  }
  return { ...asIs, minGb: images.find(({ stack }) => stack === values.stack)?.min_rootfs_gb ?? 1 };
}

/** null: no number is written. NaN: the text is no number. */
export const expirySec = ({ count, unit }: Expiry): number | null =>
  count.trim() === '' ? null : Number(count) * UNIT_SEC[unit];

export const readAction = (text: string): ExpiryAction => EXPIRY_ACTIONS.find((known) => known === text) ?? 'destroy';

/** The request, with only the fields that differ from the service's defaults. */
export function bodyOf(values: CreateValues, boot: Boot): CreateBody {
  const { name, source, expiry } = values;
  const env = objectOf(values.env) as Record<string, string>;
  const metadata = objectOf(values.metadata);
  const expires = expirySec(expiry);
  const body: CreateBody = {};
  if (name !== '') body.name = name;
  if (!boot.isMemory) {
    if (Number(values.vcpus) !== MACHINE_DEFAULTS.vcpus) body.vcpus = Number(values.vcpus);
    if (Number(values.memory_mb) !== MACHINE_DEFAULTS.memory_mb) body.memory_mb = Number(values.memory_mb);
  }
  if (Number(values.rootfs_size_gb) !== boot.defaultGb) body.rootfs_size_gb = Number(values.rootfs_size_gb);
  if (source === 'image' && values.stack !== MACHINE_DEFAULTS.stack) body.stack = values.stack;
  if (source === 'snapshot') body.snapshot_id = values.snapshot_id;
  if (source === 'disk') body.root_volume_id = values.root_volume_id;
  if (Object.keys(metadata).length > 0) body.metadata = metadata;
  if (Object.keys(env).length > 0) body.env = env;
  // A text that is no number is refused before the request is sent, and has no place in the samples.
  if (expires !== null && !Number.isNaN(expires)) {
    body.expires_in_sec = expires;
    if (expiry.action !== 'destroy') body.on_expiry = expiry.action;
  }
  return body;
}
