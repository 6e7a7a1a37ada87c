// Tests the checks of the form for a new machine before it is sent.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Schemas } from '../api/client.ts';
import type { Boot, CreateValues } from './create-body.ts';
import { boundsOf, checkValues } from './create-check.ts';
import { emptyRow } from './key-values.ts';

const BOOT: Boot = { minGb: 1, defaultGb: 10, isMemory: false, heldGb: 0 };
const QUOTAS: Schemas['Quotas'] = {
  tier: 'starter',
  quotas: [{ name: 'storage_gb', used: 45, limit: 50, description: '' }],
  largest_machine: { vcpus: 4, memory_mb: 8_192, rootfs_size_gb: 50 },
};
const VALUES: CreateValues = {
  ...{ name: '', vcpus: '1', memory_mb: '512', rootfs_size_gb: '10', source: 'image', stack: 'python' },
  ...{ snapshot_id: '', root_volume_id: '', env: [], metadata: [] },
  expiry: { count: '', unit: 'hours', action: 'destroy' },
};

test('form for a new machine > without quotas the largest machine is the bound', () => {
  assert.deepEqual(Object.keys(checkValues(VALUES, boundsOf(QUOTAS, BOOT), BOOT)), ['rootfs_size_gb']);
  const bounds = boundsOf({ ...QUOTAS, quotas: [] }, BOOT);
  assert.deepEqual(checkValues(VALUES, bounds, BOOT), {});
  const env = [1, 2].map(() => ({ ...emptyRow(), key: 'A', value: 'b' }));
  const wrong = { ...VALUES, rootfs_size_gb: '51', env, expiry: { ...VALUES.expiry, count: '1e' } };
  assert.deepEqual(checkValues(wrong, bounds, BOOT), {
    rootfs_size_gb: 'A whole number from 1 to 50.',
    env: 'The key "A" is there twice.',
    expires_in_sec: 'From 10 seconds to 365 days, in whole seconds.',
  });
});
