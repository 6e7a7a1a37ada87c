// Compares checkouts with each other: runs a service of each, side by side, and asks them in turns, so that all of them
// see the same noise of the computer.
//
//   node bench/turns.ts [--mode pool|template|cold] [--rounds N] [--tasks single,burst,idle] NAME=CHECKOUT[,CACHE] …
//
// Checkouts with different guest agents need caches of their own (a copy of /var/cache/sandbar, or an empty folder),
// because each service replaces the image in its cache by its own.
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { parseArgs } from 'node:util';
import { percentile } from './statistics.ts';

/** What is measured: single creates and execs, 20 creates at once, or the memory of idle machines. */
export type Task = 'single' | 'burst' | 'idle';
/** Values, by what was measured. */
export type Measured = Record<string, number[]>;

const SERVICE = path.join(import.meta.dirname, 'turns', 'measured-service.ts');

type Runner = { name: string; child: ChildProcess; answers: AsyncIterator<string> };

async function start(argument: string, mode: string): Promise<Runner> {
  const [name = '', place = ''] = argument.split('=');
  const [checkout = '', cache] = place.split(',').map((folder) => path.resolve(folder));
  const env = { ...process.env, ...(cache === undefined ? {} : { SANDBAR_CACHE: cache }) };
  const child = spawn(path.join(checkout, 'node_modules/node/bin/node'), [SERVICE, checkout, mode], {
    cwd: checkout,
    env,
    stdio: ['pipe', 'pipe', 'inherit'],
  });
  if (!child.stdout) throw new Error('a service has no output');
  const runner = { name, child, answers: createInterface(child.stdout)[Symbol.asyncIterator]() };
  await answerOf(runner);
  return runner;
}

/** Returns the next answer. Lines that are no JSON are output of the service. */
async function answerOf({ name, answers }: Runner): Promise<Measured> {
  for (;;) {
    const { value, done } = await answers.next();
    if (done) throw new Error(`the service of ${name} ended`);
    if (!value.startsWith('{')) continue;
    const answer = JSON.parse(value);
    if ('error' in answer) throw new Error(`${name}: ${answer.error}`);
    return answer;
  }
}

const { values: options, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    mode: { type: 'string', default: 'pool' },
    rounds: { type: 'string', default: '10' },
    tasks: { type: 'string', default: 'single' },
  },
});
const seen = new Map<string, number[]>();
const runners: Runner[] = [];
try {
  for (const argument of positionals) runners.push(await start(argument, options.mode));
  for (let round = 0; round < Number(options.rounds); round++) {
    for (const task of options.tasks.split(',')) {
      for (const runner of round % 2 === 0 ? runners : runners.toReversed()) {
        runner.child.stdin?.write(`${task}\n`);
        for (const [what, values] of Object.entries(await answerOf(runner))) {
          const key = `${what.padEnd(40)} ${runner.name}`;
          seen.set(key, [...(seen.get(key) ?? []), ...values]);
        }
      }
    }
  }
} finally {
  for (const { child } of runners) {
    const ended = once(child, 'exit');
    child.stdin?.end();
    await ended;
  }
}
for (const key of [...seen.keys()].sort()) {
  const values = seen.get(key) ?? [];
  const at = (share: number) => percentile(values, share).toFixed(1);
  console.log(`${key.padEnd(56)} median ${at(0.5)} (quartiles ${at(0.25)} to ${at(0.75)}, n ${values.length})`);
}
