// Quotas: how much of each counted dimension an account uses, and its limit.
import { type Static, Type } from 'typebox';
import { TIERS } from './account.ts';
import { OneOf } from './fields.ts';
import { QUOTA_DIMENSIONS, type QuotaDimension } from './tier-limits.ts';

export const QUOTA_DESCRIPTIONS: Record<QuotaDimension, string> = {
  machines: 'Machines that exist, stopped ones included; a machine in state error is not counted.',
  vcpus: 'vCPUs of all counted machines.',
  memory_mb: 'Memory of all counted machines, MiB.',
  storage_gb: 'Every disk, GiB: root disks of counted machines, kept root disks and data volumes, attached or not.',
  volumes: 'Data volumes; a root disk counts in storage_gb only.',
};

/** The size of the largest machine that an account can create now or after it has freed quota. */
const LargestMachine = Type.Object(
  { vcpus: Type.Integer(), memory_mb: Type.Integer(), rootfs_size_gb: Type.Integer() },
  {
    description:
      "The most of each that one machine may have, by the account's limits for one machine and by the largest host. A larger machine is refused with `validation_error`.",
  },
);
export type LargestMachine = Static<typeof LargestMachine>;

export const Quotas = Type.Object(
  {
    tier: OneOf(TIERS),
    quotas: Type.Array(
      Type.Object({
        name: OneOf(QUOTA_DIMENSIONS),
        used: Type.Integer(),
        limit: Type.Integer({ description: 'With any override of the account.' }),
        description: Type.String(),
      }),
    ),
    largest_machine: LargestMachine,
  },
  { title: 'Quotas' },
);
export type Quotas = Static<typeof Quotas>;
