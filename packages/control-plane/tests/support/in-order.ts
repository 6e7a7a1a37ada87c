// Checks after a test that counters, rows and the host agree with each other.
import assert from 'node:assert/strict';
import type { Audit } from '@sandbar/contract/admin.ts';
import { callAdmin } from './admin.ts';
import { checkBooks, type TestBed } from './test-bed.ts';

/**
 * Fails when a counter differs from a recount, or when the audit finds a lasting difference between the host and the
 * rows.
 */
export async function checkAll(bed: TestBed): Promise<void> {
  await checkBooks(bed);
  await checkAudit(bed.plane.app.config.adminSocket);
}

/** Fails when the audit of the control plane on this socket has a finding. */
export async function checkAudit(adminSocket: string): Promise<void> {
  const { status, json } = await callAdmin<Audit>(adminSocket, '/admin/audit');
  assert.equal(status, 200, JSON.stringify(json));
  assert.deepEqual([json.findings, json.not_looked_at], [[], []]);
}
