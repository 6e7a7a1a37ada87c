// That all is in order: the books add up, and the audit finds nothing.
import assert from 'node:assert/strict';
import type { Audit } from '@sandbar/contract/admin.ts';
import { callAdmin } from './admin.ts';
import { checkBooks, type TestBed } from './test-bed.ts';

/** Fails when a counter is off, or the host and the rows differ in anything that lasts. */
export async function checkAll(bed: TestBed): Promise<void> {
  await checkBooks(bed);
  await checkAudit(bed.plane.app.config.adminSocket);
}

/** The audit alone, of whoever answers on this socket. */
export async function checkAudit(adminSocket: string): Promise<void> {
  const { status, json } = await callAdmin<Audit>(adminSocket, '/admin/audit');
  assert.equal(status, 200, JSON.stringify(json));
  assert.deepEqual([json.findings, json.not_looked_at], [[], []]);
}
