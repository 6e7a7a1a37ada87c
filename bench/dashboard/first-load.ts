// Measures the first load of the dashboard's list of machines in headless Chromium: the bytes of script as they
// are sent (brotli; tests/browser/first-load.test.ts bounds their size with gzip), and the time from the start of the
// navigation until the first machine can be clicked.
//   SANDBAR_DATABASE_URL=postgres://… node_modules/node/bin/node bench/dashboard/first-load.ts
// Creates the database `sandbar_bench_first_load` on the server of the URL and drops it at the end. The exit code is 1
// when a bound is missed. Optional: BENCH_ROUNDS (default 10), BENCH_SCRIPTS (1: also prints the size of each script).
import type { BrowserContext } from 'playwright-core';
import { summarize } from '../statistics.ts';
import { makeMachines, startDashboardBed } from './bed.ts';

const ROUNDS = Number(process.env.BENCH_ROUNDS ?? 10);
const MACHINES = 20;
const INTERACTIVE_MS_MAX = 1_000;

type Load = { interactiveMs: number; scriptKb: number; scripts: string[] };

/** Loads the list in a window that has nothing in its cache. */
async function load(context: BrowserContext): Promise<Load> {
  const page = await context.newPage();
  // Marks the time at which the first link to a machine is visible and nothing covers it.
  await page.addInitScript(() => {
    const look = () => {
      const link = document.querySelector('tbody a[href^="/machines/"]');
      const box = link?.getBoundingClientRect();
      const top = box ? document.elementFromPoint(box.x + box.width / 2, box.y + box.height / 2) : null;
      if (link && top && link.contains(top)) performance.mark('interactive');
      else requestAnimationFrame(look);
    };
    requestAnimationFrame(look);
  });
  await page.goto('/machines');
  await page.waitForFunction(() => performance.getEntriesByName('interactive').length > 0);
  const measured = await page.evaluate(() => ({
    interactiveMs: performance.getEntriesByName('interactive')[0]?.startTime ?? Number.NaN,
    scripts: (performance.getEntriesByType('resource') as PerformanceResourceTiming[])
      .filter(({ name }) => name.endsWith('.js'))
      .map(({ name, encodedBodySize }) => ({ name: name.split('/').at(-1) ?? name, bytes: encodedBodySize })),
  }));
  await page.close();
  return {
    interactiveMs: measured.interactiveMs,
    scriptKb: measured.scripts.reduce((sum, { bytes }) => sum + bytes, 0) / 1000,
    scripts: measured.scripts.map(({ name, bytes }) => `${name} ${bytes}`),
  };
}

const bed = await startDashboardBed('sandbar_bench_first_load');
try {
  const account = await bed.newAccount('owner');
  await makeMachines(account, MACHINES);
  const loads: Load[] = [];
  for (let round = 0; round < ROUNDS; round++) {
    const context = await bed.newWindow(account);
    loads.push(await load(context));
    await context.close();
  }
  const scriptKb = Math.max(...loads.map((one) => one.scriptKb));
  const times = loads.map(({ interactiveMs }) => interactiveMs);
  if (process.env.BENCH_SCRIPTS) console.log(loads[0]?.scripts.join('\n'));
  console.log(`script, as sent: ${scriptKb.toFixed(1)} kB`);
  console.log(`first machine can be clicked, ms: ${summarize(times)} (bound ${INTERACTIVE_MS_MAX})`);
  if (Math.max(...times) > INTERACTIVE_MS_MAX) process.exitCode = 1;
} finally {
  await bed.close();
}
