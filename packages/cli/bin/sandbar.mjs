#!/usr/bin/env node
// The command `sandbar` on whatever Node the machine has: below 24, which cannot run TypeScript as it is, it goes on
// under the Node that `npm start` installed.
import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import module from 'node:module';
import { constants, homedir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

// What Node made of the sources the last time: half of the time of a short command. In a folder of the user's own, since
// what is in it is run.
const cache = join(process.env.XDG_CACHE_HOME || join(homedir(), '.cache'), 'sandbar', 'node');

if (Number(process.versions.node.split('.')[0]) >= 24) {
  module.enableCompileCache(process.env.NODE_COMPILE_CACHE || cache);
  // Imported by name only here: an older Node must never see it.
  await import('../src/main.ts');
} else {
  const node = fileURLToPath(new URL('../../../node_modules/node/bin/node', import.meta.url));
  if (!existsSync(node)) {
    console.error('sandbar: needs Node 24 or newer; run npm start in the Sandbar checkout once, which installs it');
    process.exit(1);
  }
  const main = fileURLToPath(new URL('../src/main.ts', import.meta.url));
  const child = spawn(node, [main, ...process.argv.slice(2)], {
    stdio: 'inherit',
    env: { NODE_COMPILE_CACHE: cache, ...process.env },
  });
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.on(signal, () => child.kill(signal));
  child.once('exit', (code, signal) => process.exit(code ?? 128 + (constants.signals[signal] ?? 0)));
}
