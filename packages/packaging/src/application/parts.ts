// Adds the parts of the service that must be built: the guest agent and the dashboard. It uses the same caches as
// `npm start`.
import { cp, mkdir } from 'node:fs/promises';
import path from 'node:path';
import { ensureAgent } from '@sandbar/host-agent/images/agent.ts';
import type { ServiceConfig } from '@sandbar/service/config.ts';
import { silentProgress } from '@sandbar/service/progress.ts';
import { BUILT_DASHBOARD, ensureDashboard } from '@sandbar/service/setup/dashboard.ts';
import { BUILT_GUEST_AGENT, findGuestAgent } from '@sandbar/service/setup/guest-agent.ts';

/** Where the parts come from. */
export type Builder = Pick<ServiceConfig, 'checkout' | 'cacheDir' | 'isRoot'>;
type Say = (line: string) => void;

/** Puts the guest agent where the installed service looks for it. Installs or downloads Go if needed. */
export async function addGuestAgent(builder: Builder, target: string, say: Say): Promise<void> {
  const source = await findGuestAgent(builder, { ...silentProgress, say }, say);
  const agent = await ensureAgent(builder.cacheDir, source, say);
  const file = path.join(target, BUILT_GUEST_AGENT);
  await mkdir(path.dirname(file), { recursive: true });
  await cp(agent.path, file);
}

/** Puts the dashboard where the installed service looks for it. Throws Error when it cannot be built. */
export async function addDashboard({ checkout, cacheDir }: Builder, target: string, say: Say): Promise<void> {
  const reasons: string[] = [];
  const built = await ensureDashboard(checkout, cacheDir, (line) => {
    reasons.push(line);
    say(line);
  });
  if (built === undefined) throw new Error(`The dashboard cannot be built: ${reasons.join('; ')}`);
  await cp(built, path.join(target, BUILT_DASHBOARD), { recursive: true });
}
