// Measures the memory of a page of the dashboard whose terminal prints without pause: the JavaScript heap after a
// garbage collection, and the nodes of the document. Starts a service of its own with a real machine, and headless
// Chromium (/usr/bin/chromium).
//   sudo node_modules/node/bin/node bench/dashboard/terminal-memory.ts
// Environment variable SECONDS: how long the terminal prints, in seconds (default 3600). The exit code is 1 if the memory
// grows.
import { setTimeout as delay } from 'node:timers/promises';
import type { Client } from '@sandbar/sdk/client.ts';
import { lineProgress } from '@sandbar/service/progress.ts';
import { onStopSignals } from '@sandbar/service/stop-signals.ts';
import type { Page } from 'playwright-core';
import { BenchService } from '../service/bench-service.ts';
import { percentile } from '../statistics.ts';
import { launchBrowser, openWindow } from './browser.ts';

const SECONDS = Number(process.env.SECONDS || 3_600);
const SAMPLES = 60;
/** The scrollback is full and all code has run after this share of the samples. */
const WARM_UP = 0.1;
/** The first and the last value are medians of this many samples. */
const NEIGHBOURS = 5;
/** Flat: the last value is at most this share above the value after the warm-up. */
const GROWTH = 0.1;
const MB = 1_000_000;

/** One round prints about 90 kB. The machine counts the rounds in a file. */
const LINES = 1_700;
const lineOf = (number: string): string => `line ${number}: the quick brown fox jumps over the lazy dog`;
const PRINT = `n=0; while :; do seq -f '${lineOf('%g')}' ${LINES}; n=$((n+1)); echo $n >/tmp/rounds; sleep 0.09; done`;
/** The terminal ends each line with two characters. */
const ROUND_BYTES = Array.from({ length: LINES }, (_, at) => lineOf(`${at + 1}`).length + 2).reduce((a, b) => a + b);

type Sample = { heapMb: number; nodes: number; listeners: number };

const { stop, hurry } = onStopSignals();
const progress = lineProgress((text) => process.stdout.write(text), process.stdout.isTTY);

async function main(): Promise<number> {
  const bench = await BenchService.prepare(0, progress, stop);
  try {
    const { sandbar, credentials } = await bench.in('cold');
    const { id } = await sandbar.machines.create({ memory_mb: 256, rootfs_size_gb: 2 });
    const browser = await launchBrowser();
    try {
      const context = await openWindow(browser, credentials.base_url, credentials);
      const page = await context.newPage();
      await openTerminal(page, id);
      const samples = await sample(page);
      return report(samples, (await countRounds(sandbar, id)) * ROUND_BYTES);
    } finally {
      await browser.close();
    }
  } finally {
    await bench.stop(hurry);
    for (const leak of await bench.remove()) progress.say(`left behind: ${leak}`);
  }
}

/** Opens the machine's terminal and starts the program that prints. */
async function openTerminal(page: Page, machineId: string): Promise<void> {
  await page.goto(`/machines/${machineId}?tab=terminal`);
  const rows = page.locator('.xterm-rows > div');
  await rows
    .filter({ hasText: /[#$]\s*$/ })
    .first()
    .waitFor();
  await page.getByRole('textbox', { name: 'Terminal input' }).focus();
  await page.keyboard.type(PRINT);
  await page.keyboard.press('Enter');
  await rows
    .filter({ hasText: /^line \d+: the quick/ })
    .first()
    .waitFor();
}

async function sample(page: Page): Promise<Sample[]> {
  const devTools = await page.context().newCDPSession(page);
  await devTools.send('HeapProfiler.enable');
  const samples: Sample[] = [];
  while (samples.length < SAMPLES && !stop.aborted) {
    await delay((SECONDS * 1_000) / SAMPLES);
    await devTools.send('HeapProfiler.collectGarbage');
    const { usedSize, backingStorageSize } = await devTools.send('Runtime.getHeapUsage');
    const { nodes, jsEventListeners } = await devTools.send('Memory.getDOMCounters');
    samples.push({ heapMb: (usedSize + backingStorageSize) / MB, nodes, listeners: jsEventListeners });
    if (samples.length % 10 === 0) progress.say(`${samples.length}/${SAMPLES}: ${JSON.stringify(samples.at(-1))}`);
  }
  return samples;
}

async function countRounds(sandbar: Client, machineId: string): Promise<number> {
  const { stdout } = await sandbar.execs.run(machineId, { command: 'cat /tmp/rounds' });
  return Number(Buffer.from(stdout).toString());
}

function report(samples: readonly Sample[], bytes: number): number {
  progress.say(`printed ${(bytes / MB).toFixed(0)} MB in ${SECONDS} s, ${(bytes / MB / SECONDS).toFixed(2)} MB/s`);
  let isFlat = true;
  for (const [name, key] of [
    ['heap with array buffers, MB', 'heapMb'],
    ['nodes', 'nodes'],
    ['event listeners', 'listeners'],
  ] as const) {
    const values = samples.slice(Math.floor(samples.length * WARM_UP)).map((sample) => sample[key]);
    const first = percentile(values.slice(0, NEIGHBOURS), 0.5);
    const last = percentile(values.slice(-NEIGHBOURS), 0.5);
    if (!(last <= first * (1 + GROWTH))) isFlat = false;
    const figures = [first, last, Math.max(...values)].map((value) => value.toFixed(1));
    progress.say(`${name}: ${figures[0]} after the warm-up, ${figures[1]} at the end, ${figures[2]} at most`);
  }
  progress.say(isFlat ? 'The memory is flat.' : 'The memory grows.');
  return isFlat ? 0 : 1;
}

process.exitCode = await main();
