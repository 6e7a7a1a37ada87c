// Examples for the OpenAPI document: a machine with 2 vCPUs, 2 GiB of memory and 10 GiB of storage that ran an hour.
import type { LedgerDetails, LedgerEntry, Usage, UsageItem } from '@sandbar/contract/billing.ts';

const item = { resource_kind: null, resource_id: null, day: null, metadata_value: null } satisfies Partial<UsageItem>;

export const exampleUsage: Usage = {
  currency: 'EUR',
  balance: '24.866000',
  from: '2026-01-01T00:00:00.000Z',
  to: '2026-01-02T04:04:05.906Z',
  total: '0.134000',
  items: [
    { kind: 'vcpu', ...item, quantity: '2.000000', unit: 'vcpu_hour', amount: '0.100000' },
    { kind: 'memory', ...item, quantity: '2.000000', unit: 'gib_hour', amount: '0.032000' },
    { kind: 'storage', ...item, quantity: '10.000000', unit: 'gib_hour', amount: '0.002000' },
  ],
};

export const exampleEntry: LedgerEntry = {
  id: '019b7c10-6a3e-7d20-9b51-2c4e8f0a1b63',
  kind: 'top-up',
  amount: '25.000000',
  balance: '25.000000',
  by_kind: null,
  charged_from: null,
  charged_to: null,
  reference: 'payment-2026-0001',
  note: 'Bank transfer',
  created_at: '2026-01-02T02:59:31.412Z',
};

const line = {
  resource_kind: 'machine',
  resource_id: '019b7c1e-5f6a-7b3c-9d2e-4a1f0c8e7b65',
  from: '2026-01-02T03:04:05.906Z',
  to: '2026-01-02T04:04:05.906Z',
} as const;

export const exampleCharge: LedgerEntry = {
  id: '019b7c55-4bd2-7f07-8e15-90c1d2e3f4a5',
  kind: 'charge',
  amount: '-0.134000',
  balance: '24.866000',
  by_kind: { vcpu: '0.100000', memory: '0.032000', storage: '0.002000', snapshot: '0.000000' },
  charged_from: line.from,
  charged_to: line.to,
  reference: null,
  note: '',
  created_at: line.to,
};

export const exampleDetails: LedgerDetails = {
  ...exampleCharge,
  lines: [
    { ...line, kind: 'vcpu', quantity: '2.000000', unit: 'vcpu_hour', price: '0.050000', amount: '0.100000' },
    { ...line, kind: 'memory', quantity: '2.000000', unit: 'gib_hour', price: '0.016000', amount: '0.032000' },
    { ...line, kind: 'storage', quantity: '10.000000', unit: 'gib_hour', price: '0.000200', amount: '0.002000' },
  ],
};
