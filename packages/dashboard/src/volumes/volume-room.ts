// How large a new volume may be, from the account's quotas.
import { VOLUME_BOUNDS } from '@sandbar/contract/volume-states.ts';
import type { Schemas } from '../api/client.ts';

type Quotas = Schemas['Quotas'] | undefined;

const left = (quotas: Quotas, name: string): number => {
  const quota = quotas?.quotas.find((one) => one.name === name);
  return quota ? quota.limit - quota.used : Number.POSITIVE_INFINITY;
};

/** The largest size of a new volume, GiB. */
export const largestVolumeGb = (quotas: Quotas): number =>
  Math.min(VOLUME_BOUNDS.sizeGbMax, left(quotas, 'storage_gb'));

/** Why no volume can be made now, as a sentence; undefined when one can. */
export function reasonAgainstNewVolume(quotas: Quotas): string | undefined {
  if (left(quotas, 'volumes') < 1) return 'The quota "volumes" is full: delete a volume first.';
  if (largestVolumeGb(quotas) < VOLUME_BOUNDS.sizeGbMin) {
    return `The quota "storage_gb" has less than ${VOLUME_BOUNDS.sizeGbMin} GiB left.`;
  }
  return undefined;
}
