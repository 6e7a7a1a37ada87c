// Measures what an open page of the dashboard costs the control plane: processor time with 20 open pages minus that
// without a page, divided by 20. The requests of each page are recorded in headless Chromium first. Then plain clients
// with the session's cookie repeat them at the same intervals. 20 windows of a browser would use so much processor time
// that the control plane would have to wait.
//   SANDBAR_DATABASE_URL=postgres://… node_modules/node/bin/node bench/dashboard/polling.ts
// It creates the database `sandbar_bench_polling` on the server of the URL, and drops it at the end. The exit code is 1
// when a bound is missed. Optional: BENCH_SECONDS (default 20), BENCH_MACHINES (default 0,10,100), BENCH_POLLS (1: also
// prints the requests of each page).
import { setTimeout as delay } from 'node:timers/promises';
import type { BrowserContext } from 'playwright-core';
import { cpuSeconds } from '../service/processes.ts';
import { type DashboardBed, makeMachines, startDashboardBed } from './bed.ts';

const SECONDS = Number(process.env.BENCH_SECONDS ?? 20);
const COUNTS = (process.env.BENCH_MACHINES ?? '0,10,100').split(',').map(Number);
const PAGES = 20;
/** The slowest requests are repeated after 30 s. */
const RECORD_MS = 62_000;
const CORE_PERCENT_MAX = 1;

/** A request that a page repeats, and how often it was sent while it was recorded. */
type Poll = { path: string; ifNoneMatch: string | undefined; times: number };

/** Opens the page and records which requests it sends once it is complete. */
async function record(context: BrowserContext, path: string): Promise<Poll[]> {
  const page = await context.newPage();
  await page.goto(path);
  await page.waitForLoadState('networkidle');
  const polls = new Map<string, Poll>();
  page.on('request', (request) => {
    const { pathname, search } = new URL(request.url());
    if (!pathname.startsWith('/v1/')) return;
    const ifNoneMatch = request.headers()['if-none-match'];
    const known = polls.get(pathname + search);
    polls.set(pathname + search, { path: pathname + search, ifNoneMatch, times: (known?.times ?? 0) + 1 });
  });
  await delay(RECORD_MS);
  await page.close();
  return [...polls.values()];
}

/** Repeats the requests as that many open pages would, and returns how many seconds of processor time that took. */
async function replay(bed: DashboardBed, polls: readonly Poll[], cookie: string, pages: number): Promise<number> {
  const before = cpuSeconds(bed.pid);
  const until = performance.now() + SECONDS * 1000;
  const send = async ({ path, ifNoneMatch }: Poll) => {
    const condition = ifNoneMatch === undefined ? {} : { 'if-none-match': ifNoneMatch };
    const answer = await fetch(bed.url + path, { headers: { cookie, ...condition } });
    if (answer.status >= 400) throw new Error(`${path} answered ${answer.status}`);
    await answer.arrayBuffer();
  };
  const follow = async (poll: Poll, page: number) => {
    const everyMs = RECORD_MS / poll.times;
    await delay((everyMs * page) / PAGES);
    while (performance.now() < until) {
      await send(poll);
      await delay(everyMs);
    }
  };
  await Promise.all(Array.from({ length: pages }, (_, page) => polls.map((poll) => follow(poll, page))).flat());
  await delay(Math.max(0, until - performance.now()));
  return cpuSeconds(bed.pid) - before;
}

const bed = await startDashboardBed('sandbar_bench_polling');
try {
  for (const count of COUNTS) {
    const account = await bed.newAccount(`owner-${count}`);
    const [machine] = await makeMachines(account, count);
    const context = await bed.newWindow(account);
    const cookie = (await context.cookies()).map(({ name, value }) => `${name}=${value}`).join('; ');
    const paths = ['/machines', '/activity', '/billing', '/quotas', '/volumes', '/snapshots'];
    if (machine !== undefined) paths.push(`/machines/${machine}`);
    const idle = await replay(bed, [], cookie, 0);
    const recorded = await Promise.all(paths.map(async (path) => ({ path, polls: await record(context, path) })));
    for (const { path, polls } of recorded) {
      const used = await replay(bed, polls, cookie, PAGES);
      const percent = (100 * (used - idle)) / SECONDS / PAGES;
      const perSec = polls.reduce((sum, { times }) => sum + times, 0) / (RECORD_MS / 1000);
      console.log(
        `${count} machines, ${path.replace(machine ?? '-', 'ID').padEnd(14)} ${perSec.toFixed(2)} requests/s, ` +
          `${percent.toFixed(2)} % of a core for each page (bound ${CORE_PERCENT_MAX}; idle ${((100 * idle) / SECONDS).toFixed(1)} % in all)`,
      );
      if (process.env.BENCH_POLLS) for (const { path: asked, times } of polls) console.log(`    ${times} x ${asked}`);
      if (percent > CORE_PERCENT_MAX) process.exitCode = 1;
    }
    await context.close();
  }
} finally {
  await bed.close();
}
