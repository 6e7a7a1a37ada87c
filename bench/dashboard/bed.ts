// The test bed of the dashboard's benchmarks: a control plane of its own (real PostgreSQL, fake host) that serves a
// freshly built dashboard, and headless Chromium.
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { ensureDashboard } from '@sandbar/service/setup/dashboard.ts';
import type { Browser, BrowserContext } from 'playwright-core';
import { prepareTarget, type Target, type Tenant } from '../attacks/target.ts';
import { launchBrowser, openWindow } from './browser.ts';

const CHECKOUT = join(import.meta.dirname, '../..');
/** How many requests run at a time while machines are created. */
const AT_ONCE = 8;

export type DashboardBed = {
  target: Target;
  /** The process of the control plane. */
  pid: number;
  url: string;
  newAccount(name: string): Promise<Tenant>;
  /** Opens a window without history that is signed in to the account. */
  newWindow(account: Tenant): Promise<BrowserContext>;
  close(): Promise<void>;
};

export async function startDashboardBed(database: string): Promise<DashboardBed> {
  const cache = mkdtempSync(join(tmpdir(), 'sandbar-bench-dashboard-'));
  const folder = await ensureDashboard(CHECKOUT, cache, console.error);
  if (folder === undefined) throw new Error('The dashboard cannot be built.');
  const target = await prepareTarget(database, [], { SANDBAR_DASHBOARD_DIR: folder, SANDBAR_VCPU_OVERCOMMIT: '1000' });
  const url = `http://127.0.0.1:${target.port}`;
  let browser: Browser | undefined;
  const close = async () => {
    await browser?.close();
    await target.close();
    rmSync(cache, { recursive: true, force: true });
  };
  try {
    const pid = await target.start();
    const launched = await launchBrowser();
    browser = launched;
    const newWindow = (account: Tenant) => openWindow(launched, url, account);
    return { target, pid, url, newAccount: target.newAccount, newWindow, close };
  } catch (error) {
    await close();
    throw error;
  }
}

/** Calls `work` with 0 to `count - 1`, a few at a time. */
export async function repeat(count: number, work: (index: number) => Promise<unknown>): Promise<void> {
  let next = 0;
  const worker = async () => {
    while (next < count) await work(next++);
  };
  await Promise.all(Array.from({ length: Math.min(AT_ONCE, count) }, worker));
}

/** Makes small machines. Returns their ids. */
export async function makeMachines({ sandbar }: Tenant, count: number): Promise<string[]> {
  const ids: string[] = [];
  await repeat(count, async (index) => {
    const { id } = await sandbar.machines.create({
      name: `worker-${index}`,
      memory_mb: 128,
      rootfs_size_gb: 2,
      metadata: { team: `team-${index % 7}`, run: `${index}` },
    });
    ids.push(id);
  });
  return ids;
}
