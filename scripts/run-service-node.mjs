// Runs one of our TypeScript programs on the service's Node, in place of this process: with the same terminal, signals
// and exit code.
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
  // The child gets a Ctrl-C from the terminal, from npm and from here, and treats all signals within half a second as
  // one. This process must stay until the child has ended.
  for (const signal of FORWARDED) process.on(signal, () => child.kill(signal));
  child.once('exit', (code, signal) => process.exit(code ?? 128 + (constants.signals[signal] ?? 0)));
}
