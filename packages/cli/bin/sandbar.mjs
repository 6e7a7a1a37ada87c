#!/usr/bin/env node
// Starts the CLI. Its sources are TypeScript, which Node runs from version 24 on. On an older Node this file starts the
// CLI again with the Node 24 that `npm start` installed, so it is plain JavaScript itself.
import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import module from 'node:module';
import { constants, homedir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

// Node caches the compiled sources here, which halves the time of a short command. Node executes the cached code, so
// the folder must be one that only this user can write.
const cache = join(process.env.XDG_CACHE_HOME || join(homedir(), '.cache'), 'sandbar', 'node');

if (Number(process.versions.node.split('.')[0]) >= 24) {
  module.enableCompileCache(process.env.NODE_COMPILE_CACHE || cache);
  // A dynamic import, because an older Node would fail to parse the TypeScript of a static one.
  const { main } = await import('../src/main.ts');
  await main(process.argv.slice(2));
} else {
  const node = fileURLToPath(new URL('../../../node_modules/node/bin/node', import.meta.url));
  if (!existsSync(node)) {
    console.error('sandbar: needs Node 24 or newer; run npm start in the Sandbar checkout once, which installs it');
    process.exit(1);
  }
  const child = spawn(node, [fileURLToPath(import.meta.url), ...process.argv.slice(2)], {
    stdio: 'inherit',
    env: { NODE_COMPILE_CACHE: cache, ...process.env },
  });
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.on(signal, () => child.kill(signal));
  child.once('exit', (code, signal) => process.exit(code ?? 128 + (constants.signals[signal] ?? 0)));
}
