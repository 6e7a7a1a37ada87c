// Requests of the operator's audit, and what tests assert about its findings.
import assert from 'node:assert/strict';
import type { Audit, AuditArea, AuditFix } from '@sandbar/contract/admin.ts';
import { callAdmin } from './admin.ts';
import { checkBooks, type TestBed } from './test-bed.ts';

/** Returns functions that run the audit of a test bed, without and with repairs. */
export function createAuditActs(bed: TestBed) {
  const ask = async <T>(...request: [path: string, body?: object]): Promise<T> => {
    const answer = await callAdmin<T>(bed.plane.app.config.adminSocket, ...request);
    assert.equal(answer.status, 200, JSON.stringify(answer.json));
    return answer.json;
  };
  const look = () => ask<Audit>('/admin/audit');
  const fix = () => ask<AuditFix>('/admin/audit/fix', {});

  /**
   * Asserts that the audit has exactly one finding, and that it has this area and subject. Returns what `--fix` would
   * do about it, as a text; null if there is no repair.
   */
  async function expectOne(area: AuditArea, subject: string, detail: RegExp): Promise<string | null> {
    const { findings } = await look();
    assert.deepEqual(
      findings.map((finding) => [finding.area, finding.subject]),
      [[area, subject]],
      JSON.stringify(findings),
    );
    assert.match(findings[0]?.detail ?? '', detail);
    return findings[0]?.fix ?? null;
  }

  /** Asserts that one fix repairs exactly this finding and that a second audit finds nothing. */
  async function expectMended(area: AuditArea, subject: string): Promise<void> {
    const { fixed, findings } = await fix();
    assert.deepEqual(findings, []);
    assert.deepEqual(
      fixed.map((finding) => [finding.area, finding.subject, finding.did.length > 0]),
      [[area, subject, true]],
    );
    assert.deepEqual((await look()).findings, []);
    await checkBooks(bed);
  }

  return { look, fix, expectOne, expectMended };
}
