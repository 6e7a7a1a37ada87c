// Checks the form for a new machine before it is sent, and finds the field that an error of the API is about.
import { MACHINE_BOUNDS } from '@sandbar/contract/machine-states.ts';
import { ApiProblem, type Schemas } from '../api/client.ts';
import { type Boot, type CreateBody, type CreateValues, type Expiry, expirySec } from './create-body.ts';
import { problemOf } from './key-values.ts';

/** The names of the fields in the API. */
export type FieldName = keyof CreateBody;
export type Problems = Partial<Record<FieldName, string>>;

type Bound = { min: number; max: number; left: number; limit: number };
export type Bounds = Record<'vcpus' | 'memory_mb' | 'rootfs_size_gb', Bound> & { machinesLeft: number };

/**
 * The largest sizes of a new machine: within the account's largest machine, and within what is left of each quota
 * that `quotas` lists.
 */
export function boundsOf({ quotas, largest_machine: largest }: Schemas['Quotas'], boot: Boot): Bounds {
  const bound = (dimension: string, min: number, max: number, held = 0): Bound => {
    const { used = 0, limit = Number.POSITIVE_INFINITY } = quotas.find(({ name }) => name === dimension) ?? {};
    const left = Math.max(0, limit - used + held);
    return { min, max: Math.min(max, left), left, limit };
  };
  return {
    vcpus: bound('vcpus', 1, largest.vcpus),
    memory_mb: bound('memory_mb', MACHINE_BOUNDS.memoryMbMin, largest.memory_mb),
    rootfs_size_gb: bound('storage_gb', boot.minGb, largest.rootfs_size_gb, boot.heldGb),
    machinesLeft: bound('machines', 1, 1).left,
  };
}

export function checkValues(values: CreateValues, bounds: Bounds, boot: Boot): Problems {
  const sizes = boot.isMemory ? (['rootfs_size_gb'] as const) : (['vcpus', 'memory_mb', 'rootfs_size_gb'] as const);
  const problems: [FieldName, string | undefined][] = [
    [
      'name',
      values.name.length > MACHINE_BOUNDS.nameLength ? `At most ${MACHINE_BOUNDS.nameLength} characters.` : undefined,
    ],
    ...sizes.map((field) => [field, checkSize(values[field], bounds[field])] as [FieldName, string | undefined]),
    ['snapshot_id', values.source === 'snapshot' && values.snapshot_id === '' ? 'Choose a snapshot.' : undefined],
    ['root_volume_id', values.source === 'disk' && values.root_volume_id === '' ? 'Choose a disk.' : undefined],
    ['env', problemOf(values.env)],
    ['metadata', problemOf(values.metadata)],
    ['expires_in_sec', checkExpiry(values.expiry)],
  ];
  return Object.fromEntries(problems.filter(([, problem]) => problem !== undefined));
}

function checkSize(text: string, { min, max, left, limit }: Bound): string | undefined {
  const value = Number(text);
  if (text.trim() !== '' && Number.isInteger(value) && value >= min && value <= max) return undefined;
  if (left < min) return `At least ${min} is needed; the account has ${left} of ${limit} left.`;
  if (max < min) return `At least ${min} is needed; the largest machine has ${max}.`;
  return `A whole number from ${min} to ${max}.`;
}

export function checkExpiry(expiry: Expiry): string | undefined {
  const { expirySecMin, expirySecMax } = MACHINE_BOUNDS;
  const sec = expirySec(expiry);
  if (sec === null || (Number.isInteger(sec) && sec >= expirySecMin && sec <= expirySecMax)) return undefined;
  return 'From 10 seconds to 365 days, in whole seconds.';
}

const QUOTA_FIELDS: Partial<Record<string, FieldName>> = {
  vcpus: 'vcpus',
  memory_mb: 'memory_mb',
  storage_gb: 'rootfs_size_gb',
};

const FIELDS: readonly FieldName[] = [
  'name',
  'vcpus',
  'memory_mb',
  'rootfs_size_gb',
  'stack',
  'metadata',
  'env',
  'expires_in_sec',
  'on_expiry',
  'snapshot_id',
  'root_volume_id',
];

/** The field that an error of the API names. An error about the source names the snapshot or the volume. */
export function fieldOf(error: Error | null): FieldName | undefined {
  if (!(error instanceof ApiProblem)) return undefined;
  const detail = error.message;
  switch (error.code) {
    case 'validation_error': {
      const [named] = /^\w+/.exec(detail) ?? [];
      return FIELDS.find((field) => field === named);
    }
    case 'quota_exceeded':
      return QUOTA_FIELDS[/^The quota (\w+)/.exec(detail)?.[1] ?? ''];
    case 'not_found':
    case 'conflict':
      if (/\bsnapshot\b/.test(detail)) return 'snapshot_id';
      return /\bvolume\b/.test(detail) ? 'root_volume_id' : undefined;
    default:
      return undefined;
  }
}
