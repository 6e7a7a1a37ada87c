// Asks the service what `sandbar doctor` shows: differences between its database and its hosts.
import { setTimeout as delay } from 'node:timers/promises';
import type { Audit } from '@sandbar/contract/admin.ts';
import { homePaths } from '@sandbar/contract/home.ts';
import { messageOf } from '@sandbar/service/problem.ts';
import { getUnixJson } from '@sandbar/service/unix-request.ts';

/** The reconciler needs some time to clear up after the last kill. */
const GIVE_UP_MS = 180_000;
const POLL_MS = 1_000;

/** Asks until nothing is found, and returns a sentence for each finding that stays. */
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
