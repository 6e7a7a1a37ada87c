// The labels for kinds of usage and of ledger entries. The types make the compiler check that none is missing.
import type { Schemas } from '../api/client.ts';

export type UsageItem = Schemas['Usage']['items'][number];
export type UsageKind = UsageItem['kind'];
export type LedgerKind = Schemas['LedgerEntry']['kind'];

export const USAGE_LABELS: Record<UsageKind, string> = {
  vcpu: 'vCPU',
  memory: 'Memory',
  storage: 'Storage',
  snapshot: 'Snapshots',
};
export const USAGE_KINDS = Object.keys(USAGE_LABELS) as UsageKind[];
export const UNITS: Record<UsageItem['unit'], string> = { vcpu_hour: 'vCPU-hours', gib_hour: 'GiB-hours' };

export const LEDGER_LABELS: Record<LedgerKind, string> = {
  'top-up': 'Top-up',
  bonus: 'Bonus',
  charge: 'Charge',
  refund: 'Refund',
  'refund-reversal': 'Refund returned',
  dispute: 'Dispute',
  'dispute-reversal': 'Dispute won',
  correction: 'Correction',
};
export const LEDGER_KINDS = Object.keys(LEDGER_LABELS) as LedgerKind[];
