// Examples for the OpenAPI document of the operator's routes.
import {
  ACCOUNT_LIMITS,
  type AccountCredited,
  type AccountDetails,
  type AccountSummary,
  type Audit,
  type FailedOperation,
  type HostSummary,
  type HostToken,
  type NewAccount,
  type NewHostToken,
  type NewPassword,
} from '@sandbar/contract/admin.ts';
import { TIER_LIMITS } from '@sandbar/contract/tier-limits.ts';

const ACCOUNT_ID = '019b2d6c-5f0a-7c3e-9a41-0d3f5b8e7a10';
const HOST_ID = '5d1f0c3a-8a44-4c1b-9e0e-2f6b7a90c3d1';
const MACHINE_ID = '019b7c1e-5f6a-7b3c-9d2e-4a1f0c8e7b65';

export const exampleSummary: AccountSummary = {
  id: ACCOUNT_ID,
  email: 'ada@example.com',
  tier: 'payg',
  billing_mode: 'prepaid',
  balance: '12.340000',
  is_owner: false,
  is_operator: false,
  machines: 1,
  created_at: '2026-01-02T03:04:05.006Z',
  suspended_at: null,
  deleted_at: null,
};

export const exampleDetails: AccountDetails = {
  ...exampleSummary,
  limits: Object.fromEntries(
    ACCOUNT_LIMITS.map((name) => [name, { limit: TIER_LIMITS.payg[name], override: null }]),
  ) as AccountDetails['limits'],
  used: { machines: 1, vcpus: 2, memory_mb: 2048, storage_gb: 10, volumes: 0 },
  rates: { mutating: { per_sec: 10, burst: 60, override: null }, exec: { per_sec: 20, burst: 100, override: null } },
};

export const exampleCredited: AccountCredited = { ...exampleDetails, is_new: true };

export const exampleNewAccount: NewAccount = {
  account_id: ACCOUNT_ID,
  api_key: 'sbr_…',
  email: 'ada@example.com',
  password: 'shown once',
};

export const exampleNewPassword: NewPassword = {
  account_id: ACCOUNT_ID,
  email: 'ada@example.com',
  password: 'shown once',
};

export const exampleHost: HostSummary = {
  id: HOST_ID,
  name: 'rack-7',
  address: '10.0.0.7:7072',
  state: 'ready',
  draining: false,
  version: '0.1.0',
  isolation: 'kvm',
  cpus: 16,
  memory_mb: 65_536,
  disk_mb: 1_000_000,
  disk_free_mb: 812_000,
  disk_reserve_mb: 5_120,
  reserved_vcpus: 12,
  reserved_memory_mb: 24_576,
  reserved_disk_gb: 120,
  machines: 9,
  volumes: 2,
  snapshots: 4,
  last_seen_at: '2026-01-02T03:04:05.006Z',
};

export const exampleAudit: Audit = {
  findings: [
    {
      area: 'machine',
      host_id: HOST_ID,
      subject: MACHINE_ID,
      detail: 'The host has this machine, but no account does.',
      fix: 'remove it from its host',
    },
  ],
  not_looked_at: [],
  looked_at: { hosts: 1, machines: 9, volumes: 2, snapshots: 1, accounts: 3 },
};

export const exampleFailedOperation: FailedOperation = {
  id: '019b7c1e-6a10-7d00-8c11-5e2f7b9a0c44',
  account_id: ACCOUNT_ID,
  email: 'ada@example.com',
  host_id: HOST_ID,
  machine_id: MACHINE_ID,
  volume_id: null,
  snapshot_id: null,
  kind: 'start',
  actor: 'user',
  attempts: 3,
  code: 'host_unavailable',
  error: 'The host does not answer.',
  created_at: '2026-01-02T03:04:05.006Z',
  finished_at: null,
};

export const exampleHostToken: NewHostToken & HostToken = {
  id: '019b7c1e-6a10-7d00-8c11-5e2f7b9a0c45',
  token: 'sbh_Jq3n0xWc7PzL4sVb8RkYtG1dHf6mQ2aXoUe5iTjNw9A.7d1a52c09b3e84f61c7a90d2e85b43f6',
  url: 'https://sandbar.example.com',
  created_at: '2026-01-02T03:04:05.006Z',
  expires_at: '2026-01-02T04:04:05.006Z',
};
