// Measures whether the list of machines stays smooth: 1,000 machines, of which clients stop and start so many that the
// list sees 200 changes of state a second, while headless Chromium shows the list and scrolls through it.
//   SANDBAR_DATABASE_URL=postgres://… node_modules/node/bin/node bench/dashboard/list.ts
// Creates the database `sandbar_bench_list` on the server of the URL and drops it at the end. The exit code is 1 when a
// bound is missed. Optional: BENCH_SECONDS (default 30), BENCH_MACHINES (default 1000).
import { setTimeout as delay } from 'node:timers/promises';
import type { Page } from 'playwright-core';
import { cpuSeconds } from '../service/processes.ts';
import { percentile } from '../statistics.ts';
import { makeMachines, startDashboardBed } from './bed.ts';

const SECONDS = Number(process.env.BENCH_SECONDS ?? 30);
const MACHINES = Number(process.env.BENCH_MACHINES ?? 1_000);
/** A stop and a start change the state once each. */
const CHANGES_PER_SEC = 200;
const FRAME_MS_MAX = 100;

type Frames = { deltas: number[]; longFrames: { ms: number; scripts: string[] }[]; texts: number };

/** Records every frame from now on, and how often a text in the table changed. */
const watchFrames = () => {
  const state: Frames = { deltas: [], longFrames: [], texts: 0 };
  Object.assign(globalThis, { benchFrames: state });
  let last = performance.now();
  const next = (now: number) => {
    state.deltas.push(now - last);
    last = now;
    requestAnimationFrame(next);
  };
  requestAnimationFrame(next);
  type Script = { invoker: string; duration: number };
  new PerformanceObserver((list) => {
    for (const entry of list.getEntries() as (PerformanceEntry & { scripts: Script[] })[]) {
      const scripts = entry.scripts.map(({ invoker, duration }) => `${invoker} ${Math.round(duration)} ms`);
      state.longFrames.push({ ms: entry.duration, scripts });
    }
  }).observe({ type: 'long-animation-frame' });
  const table = document.querySelector('table');
  if (!table) throw new Error('There is no list.');
  new MutationObserver((changes) => {
    state.texts += changes.length;
  }).observe(table, { subtree: true, characterData: true });
};

async function measure(page: Page, isScrolling: boolean): Promise<Frames> {
  await page.evaluate(watchFrames);
  if (isScrolling) {
    await page.evaluate(() => {
      const list = document.querySelector('section[aria-label="Machines"]');
      let step = 90;
      setInterval(() => {
        if (!list) return;
        if (list.scrollTop + list.clientHeight >= list.scrollHeight - 1) step = -90;
        if (list.scrollTop === 0) step = 90;
        list.scrollTop += step;
      }, 16);
    });
  }
  await delay(SECONDS * 1000);
  return await page.evaluate(() => (globalThis as unknown as { benchFrames: Frames }).benchFrames);
}

const bed = await startDashboardBed('sandbar_bench_list');
try {
  const account = await bed.newAccount('owner');
  const ids = await makeMachines(account, MACHINES);
  const running = new Set(ids);
  let changes = 0;
  let isOver = false;
  const change = async (id: string) => {
    const { machines } = account.sandbar;
    if (running.delete(id)) await machines.stop(id);
    else {
      await machines.start(id);
      running.add(id);
    }
    changes += 1;
  };
  /** Stops and starts machine after machine, at the rate of the benchmark but no faster than the answers come. */
  const changeMany = async () => {
    const began = performance.now();
    const worker = async (first: number, step: number) => {
      for (let turn = first; !isOver; turn += step) {
        await delay(Math.max(0, began + (turn * 1000) / CHANGES_PER_SEC - performance.now()));
        const id = ids[turn % ids.length];
        if (id !== undefined) await change(id);
      }
    };
    const workers = 16;
    await Promise.all(Array.from({ length: workers }, (_, index) => worker(index, workers)));
  };
  const changing = changeMany();
  for (const isScrolling of [false, true]) {
    const context = await bed.newWindow(account);
    const page = await context.newPage();
    await page.goto('/machines');
    await page.locator('tbody a').first().waitFor();
    await delay(2_000);
    const [before, cpu, from] = [changes, cpuSeconds(bed.pid), performance.now()];
    const { deltas, longFrames, texts } = await measure(page, isScrolling);
    const seconds = (performance.now() - from) / 1000;
    const rate = (changes - before) / seconds;
    const share = (cpuSeconds(bed.pid) - cpu) / seconds;
    const longest = Math.max(...deltas);
    console.log(
      `${isScrolling ? 'scrolling' : 'at rest'}: ${rate.toFixed(0)} changes/s, ${texts} texts changed on the screen, ` +
        `${(deltas.length / seconds).toFixed(0)} frames/s, median ${percentile(deltas, 0.5).toFixed(1)} ms, ` +
        `p99 ${percentile(deltas, 0.99).toFixed(1)} ms, longest ${longest.toFixed(1)} ms (bound at rest ${FRAME_MS_MAX}), ` +
        `over ${FRAME_MS_MAX} ms: ${deltas.filter((ms) => ms > FRAME_MS_MAX).length}; control plane ${share.toFixed(2)} cores`,
    );
    const worst = longFrames.toSorted((a, b) => b.ms - a.ms).slice(0, 4);
    for (const { ms, scripts } of worst) console.log(`  long frame ${ms.toFixed(0)} ms: ${scripts.join(', ')}`);
    // The bound is for a list that nobody scrolls.
    if (!isScrolling && (longest > FRAME_MS_MAX || rate < CHANGES_PER_SEC * 0.9)) process.exitCode = 1;
    await context.close();
  }
  isOver = true;
  await changing;
} finally {
  await bed.close();
}
