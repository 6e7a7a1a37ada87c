// A finding of the audit: the text for the operator, a key that identifies the finding in a second comparison, and
// optionally a way to repair it.
import type { AuditArea, AuditFinding } from '@sandbar/contract/admin.ts';
import type { App } from '../app.ts';

export type Mend = {
  /** What the repair would do, for example "remove it from its host". */
  fix: string;
  /** What the repair did, for example "removed it from its host". */
  did: string;
  /** Repairs the finding. Safe to repeat; changes nothing if the difference no longer exists. */
  run: (app: App) => Promise<unknown>;
};

export type Finding = {
  area: AuditArea;
  hostId: string | null;
  subject: string;
  detail: string;
  /**
   * Identifies the difference. Two comparisons produce the same key only if they saw the same difference; a later
   * difference of the same object gets another key.
   */
  key: string;
  /** The repair, or undefined if no repair is safe. */
  mend?: Mend | undefined;
};

/** Converts a finding into the object that the operator gets. */
export function toAuditFinding({ area, hostId, subject, detail, mend }: Finding): AuditFinding {
  return { area, host_id: hostId, subject, detail, fix: mend?.fix ?? null };
}
