// Measures terminals of a running service: how long a key press takes to come back, and how much memory open terminals
// take in the control plane and the host agent. Creates machines and destroys them at the end.
//   SANDBAR_HOME=… node_modules/node/bin/node bench/terminals.ts
// The service must run on this computer. Optional variables: BENCH_KEYS (key presses, default 300), BENCH_TERMINALS
// (open at once, default 500, in machines of 64).
import { readFileSync } from 'node:fs';
import { setTimeout as delay } from 'node:timers/promises';
import { defaultHome, homePaths } from '@sandbar/contract/home.ts';
import { TERMINAL_BOUNDS } from '@sandbar/contract/terminal-bounds.ts';
import { Client } from '@sandbar/sdk/client.ts';
import type { TerminalConnection } from '@sandbar/sdk/terminal-connection.ts';
import { residentMb } from './service/processes.ts';
import { summarize } from './statistics.ts';

const KEYS = Number(process.env.BENCH_KEYS ?? 300);
const TERMINALS = Number(process.env.BENCH_TERMINALS ?? 500);
/** Pause between two key presses, ms: as fast as a person types. */
const PAUSE_MS = 50;
/** Requests for tickets count as changes, of which an account has 60 at once and 10 a second. */
const AT_ONCE = 8;
const PROCESSES = ['control-plane', 'host-agent'] as const;
const paths = homePaths(defaultHome(process.env, process.getuid?.() === 0));
const sandbar = new Client({ userAgent: 'sandbar-bench' });
const machines: string[] = [];

async function newMachine(): Promise<string> {
  const { id } = await sandbar.machines.create({ memory_mb: 512 });
  machines.push(id);
  return id;
}

/** Reads the output of a terminal. The function that it returns waits for the next output. */
function watch(terminal: TerminalConnection): () => Promise<void> {
  let onOutput = () => {};
  void (async () => {
    for await (const _ of terminal) onOutput();
  })().catch(() => undefined);
  return () =>
    new Promise((resolve) => {
      onOutput = resolve;
    });
}

/** The milliseconds from each key press until something comes back, at the prompt of a shell. */
async function echoes(machineId: string, keys: number): Promise<number[]> {
  const terminal = await sandbar.terminals.open(machineId);
  const output = watch(terminal);
  await output();
  const times: number[] = [];
  for (let key = 0; key < keys + 20; key++) {
    await delay(PAUSE_MS);
    const began = performance.now();
    const echo = output();
    // Now and then an interrupt, so that the line stays short.
    await terminal.write(key % 40 === 39 ? '\u0003' : 'x');
    await echo;
    // The first ones run code for the first time.
    if (key >= 20) times.push(performance.now() - began);
  }
  await sandbar.terminals.end(machineId, terminal.id);
  terminal.leave();
  return times;
}

const pids = () => PROCESSES.map((name) => Number(readFileSync(paths.pidFile(name), 'utf8').split('\n')[0]));
const memory = () => pids().map((pid) => residentMb(pid));

/** Opens terminals, `AT_ONCE` at a time, and keeps them open. */
async function openMany(count: number): Promise<TerminalConnection[]> {
  const open: TerminalConnection[] = [];
  while (open.length < count) {
    const machineId = await newMachine();
    const here = Math.min(TERMINAL_BOUNDS.perMachine, count - open.length);
    for (let at = 0; at < here; at += AT_ONCE) {
      const some = Array.from({ length: Math.min(AT_ONCE, here - at) }, () => sandbar.terminals.open(machineId));
      open.push(...(await Promise.all(some)));
    }
  }
  for (const terminal of open) watch(terminal);
  return open;
}

try {
  const machineId = await newMachine();
  console.log(`echo of a key press, ms: ${summarize(await echoes(machineId, KEYS))}`);

  // The first terminals load code and fill pools, which is not theirs.
  for (const terminal of await openMany(AT_ONCE)) terminal.leave();
  await delay(5_000);
  const before = memory();
  const open = await openMany(TERMINALS);
  await delay(5_000);
  const after = memory();
  for (const [at, name] of PROCESSES.entries()) {
    const [from = 0, to = 0] = [before[at], after[at]];
    const each = ((to - from) * 1024) / open.length;
    console.log(
      `${name}: ${from.toFixed(0)} MB, ${to.toFixed(0)} MB with ${open.length} terminals: ${each.toFixed(1)} KiB each`,
    );
  }
  console.log(`echo meanwhile, ms: ${summarize(await echoes(machineId, KEYS))}`);
  for (const terminal of open) terminal.leave();
} finally {
  await Promise.all(machines.map((id) => sandbar.machines.destroy(id)));
}
