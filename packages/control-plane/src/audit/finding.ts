// A finding inside the control plane: what the operator is told, how to know it again in a second look, and how to mend it.
import type { AuditArea, AuditFinding } from '@sandbar/contract/admin.ts';
import type { App } from '../app.ts';

export type Mend = {
  /** What it would do: "remove it from its host". */
  fix: string;
  /** What was done: "removed it from its host". */
  did: string;
  /** May be repeated, and changes nothing when the reason is gone meanwhile. */
  run: (app: App) => Promise<unknown>;
};

export type Finding = {
  area: AuditArea;
  hostId: string | null;
  subject: string;
  detail: string;
  /** The same in two looks exactly when it is the same difference, not one that came after it. */
  key: string;
  /** Undefined when nothing can be done safely. */
  mend?: Mend | undefined;
};

/** A finding as the operator sees it. */
export function toAuditFinding({ area, hostId, subject, detail, mend }: Finding): AuditFinding {
  return { area, host_id: hostId, subject, detail, fix: mend?.fix ?? null };
}
