// The counted dimensions of a quota and their limits in each tier. This file imports no code, so the dashboard can use
// the tables without the library for schemas.
import type { Tier } from './account.ts';

/** When a request exceeds several dimensions, the error names the first of them in this order. */
export const QUOTA_DIMENSIONS = ['machines', 'vcpus', 'memory_mb', 'storage_gb', 'volumes'] as const;
export type QuotaDimension = (typeof QUOTA_DIMENSIONS)[number];
export type Amounts = Record<QuotaDimension, number>;

export type TierLimits = Amounts & { vcpus_per_machine: number; memory_mb_per_machine: number };

/**
 * Limits by tier. The operator sets the limits of each enterprise account. The enterprise numbers here only make sure
 * that a mistake in such an account cannot use up the whole fleet.
 */
export const TIER_LIMITS: Record<Tier, TierLimits> = {
  free: {
    machines: 3,
    vcpus: 4,
    memory_mb: 4096,
    storage_gb: 30,
    volumes: 2,
    vcpus_per_machine: 2,
    memory_mb_per_machine: 2048,
  },
  payg: {
    machines: 20,
    vcpus: 24,
    memory_mb: 32_768,
    storage_gb: 200,
    volumes: 10,
    vcpus_per_machine: 8,
    memory_mb_per_machine: 16_384,
  },
  enterprise: {
    machines: 1000,
    vcpus: 4000,
    memory_mb: 8_388_608,
    storage_gb: 100_000,
    volumes: 1000,
    vcpus_per_machine: 288,
    memory_mb_per_machine: 4_194_304,
  },
};
