// Runs a TypeScript program of ours under the service's Node as if it were this process: same terminal, same signals,
// same exit code.
import { spawn } from 'node:child_process';
import { constants } from 'node:os';
import { checkout, fail, serviceNode } from './node-modules.mjs';

const FORWARDED = ['SIGINT', 'SIGTERM', 'SIGHUP'];

/** Runs `script` (a path in the checkout) with `args` and ends this process as it ended. */
export function runServiceNode(script, args) {
  const child = spawn(serviceNode, ['--disable-warning=ExperimentalWarning', `${checkout}/${script}`, ...args], {
    stdio: 'inherit',
  });
  child.once('error', (error) =>
    fail(`Cannot run ${serviceNode} (${error.message}); remove node_modules and try again.`),
  );
  // A Ctrl-C reaches the child from the terminal and again from here, and from npm: it takes what comes within half a
  // second as one. This process only has to stay until the child is done.
  for (const signal of FORWARDED) process.on(signal, () => child.kill(signal));
  child.once('exit', (code, signal) => process.exit(code ?? 128 + (constants.signals[signal] ?? 0)));
}
