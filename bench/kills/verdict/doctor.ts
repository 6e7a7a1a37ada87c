// Runs the audit that `sandbar doctor` shows: differences between the database and the hosts.
import { setTimeout as delay } from 'node:timers/promises';
import type { Audit } from '@sandbar/contract/admin.ts';
import { homePaths } from '@sandbar/contract/home.ts';
import { messageOf } from '@sandbar/service/problem.ts';
import { getUnixJson } from '@sandbar/service/unix-request.ts';

/** How long the reconciler may take to clean up after the last kill. */
const GIVE_UP_MS = 180_000;
const POLL_MS = 1_000;

/** Repeats the audit until it finds nothing or the time is over. Returns a sentence for each remaining finding. */
export async function checkDoctor(home: string): Promise<string[]> {
  for (const until = performance.now() + GIVE_UP_MS; ; await delay(POLL_MS)) {
    const findings = await audit(homePaths(home).adminSocket);
    if (findings.length === 0 || performance.now() > until) return findings;
  }
}

async function audit(adminSocket: string): Promise<string[]> {
  try {
    const { findings, not_looked_at } = await getUnixJson<Audit>(adminSocket, '/admin/audit');
    return [
      ...findings.map(({ area, subject, detail }) => `doctor, ${area} ${subject}: ${detail}`),
      ...not_looked_at.map(({ host_id, why }) => `doctor could not look at host ${host_id}: ${why}`),
    ];
  } catch (error) {
    return [`doctor did not answer: ${messageOf(error)}`];
  }
}
