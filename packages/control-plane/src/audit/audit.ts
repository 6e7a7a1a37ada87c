// The audit compares all data that is stored in two places: the hosts' machines, volumes and snapshots with the
// database, stored totals with the rows that they count, and the ledger, the meters and the feed with each other. An
// unfinished operation can cause a temporary difference. So the audit compares twice, with a pause, and reports only the
// differences that both comparisons saw. It repairs a difference only when the repair is certainly safe.
import type { Audit, AuditFix } from '@sandbar/contract/admin.ts';
import type { App } from '../app.ts';
import { forEachBounded, sleep } from '../concurrency.ts';
import { asOwner } from '../db/database.ts';
import { listHosts } from '../hosts/store.ts';
import { findInBooks } from './books.ts';
import { findInFeed } from './feed.ts';
import { type Finding, toAuditFinding } from './finding.ts';
import { lookAtHost } from './hosts.ts';
import { findInLedger } from './ledger.ts';
import { findLeftovers } from './leftovers.ts';
import { findInMeters } from './meters.ts';
import { findInPublications } from './publications.ts';

type Look = Omit<Audit, 'findings'> & { findings: Finding[] };

/** Compares everything and returns the findings. Changes nothing. */
export async function audit(app: App): Promise<Audit> {
  const look = await lookTwice(app);
  return { ...look, findings: look.findings.map(toAuditFinding) };
}

/**
 * Compares everything, makes all safe repairs, and compares again. Returns what was repaired and what remains. A repair
 * that fails is logged, and its finding remains.
 */
export async function fixAudit(app: App): Promise<AuditFix> {
  const before = await lookTwice(app);
  const mended = new Set<string>();
  for (const { key, area, hostId, subject, mend } of before.findings) {
    if (!mend) continue;
    // One call to a host repairs all problems that this host reported.
    const once = area === 'host' ? `host/${hostId}` : key;
    if (mended.has(once)) continue;
    mended.add(once);
    app.log.info({ area, host_id: hostId, subject, mend: mend.did }, 'the audit mends');
    await mend.run(app).catch((err: unknown) => app.log.warn({ err, area, subject }, 'the audit could not mend'));
  }
  const after = await lookTwice(app);
  const left = new Set(after.findings.map((finding) => finding.key));
  const fixed = before.findings.flatMap((finding) =>
    finding.mend && !left.has(finding.key) ? [{ ...toAuditFinding(finding), did: finding.mend.did }] : [],
  );
  return { ...after, findings: after.findings.map(toAuditFinding), fixed };
}

/**
 * The pause between the two comparisons, in intervals of the reconciler. It is longer than one interval, so the
 * reconciler can resolve ordinary differences in between.
 */
const PAUSE_PASSES = 1.5;

async function lookTwice(app: App): Promise<Look> {
  const first = await look(app);
  if (first.findings.length === 0) return first;
  await sleep(app.config.timing.reconcileMs * PAUSE_PASSES, app.closing);
  const second = await look(app);
  const seen = new Set(first.findings.map((finding) => finding.key));
  return { ...second, findings: second.findings.filter((finding) => seen.has(finding.key)) };
}

/** How many hosts are asked at the same time. */
const HOSTS_WIDTH = 8;

async function look(app: App): Promise<Look> {
  const reachable = new Set(app.hosts.reachableIds());
  const inUse = await hostsInUse(app);
  const result: Look = {
    findings: [
      ...(await findInBooks(app)),
      ...(await findInBilling(app)),
      ...(await findLeftovers(app)),
      ...(await findInPublications(app)),
    ],
    not_looked_at: [],
    looked_at: { hosts: 0, machines: 0, volumes: 0, snapshots: 0, accounts: await countAccounts(app) },
  };
  await forEachBounded(await listHosts(app.db), HOSTS_WIDTH, async (host) => {
    if (!reachable.has(host.id)) {
      if (inUse.has(host.id)) result.not_looked_at.push({ host_id: host.id, why: 'it is away' });
      return;
    }
    try {
      const { findings, machines, volumes, snapshots } = await lookAtHost(app, host);
      result.findings.push(...findings);
      result.looked_at.hosts++;
      result.looked_at.machines += machines;
      result.looked_at.volumes += volumes;
      result.looked_at.snapshots += snapshots;
    } catch (error) {
      app.log.warn({ err: error, host_id: host.id }, 'a host could not be audited');
      result.not_looked_at.push({ host_id: host.id, why: error instanceof Error ? error.message : String(error) });
    }
  });
  return result;
}

/**
 * Returns the findings about the ledger, the meters, and the meters' agreement with the feed. These read all entries and
 * meters, which takes longer with every month, so they use a connection whose statements have no time-out.
 */
export function findInBilling(app: App): Promise<Finding[]> {
  return asOwner(app.config.databaseUrl, app.log, async (db) => {
    const unhurried = { ...app, db };
    return [...(await findInLedger(unhurried)), ...(await findInMeters(unhurried)), ...(await findInFeed(unhurried))];
  });
}

/**
 * Returns the ids of hosts that still have machines or volumes. If such a host is away, the audit reports that it
 * could not check the host. A host without machines and volumes may be away.
 */
async function hostsInUse(app: App): Promise<Set<string>> {
  const machines = app.db.selectFrom('machines').select('host_id').where('state', '<>', 'destroyed');
  const rows = await machines.union(app.db.selectFrom('volumes').select('host_id')).execute();
  return new Set(rows.map((row) => row.host_id));
}

async function countAccounts(app: App): Promise<number> {
  const { accounts } = await app.db
    .selectFrom('accounts')
    .select((is) => is.fn.countAll<number>().as('accounts'))
    .executeTakeFirstOrThrow();
  return accounts;
}
