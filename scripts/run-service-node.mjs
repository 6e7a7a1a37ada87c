// Runs one of our TypeScript programs on the service's Node, in place of this process: with the same terminal, signals
// and exit code.
import { spawn } from 'node:child_process';
import { constants } from 'node:os';
import { checkout, fail, serviceNode } from './node-modules.mjs';

const FORWARDED = ['SIGINT', 'SIGTERM', 'SIGHUP'];

/**
 * Runs `script` (a path in the checkout) with `args`. Then exits with its exit code, or with 128 plus the number of the
 * signal that ended it.
 */
export function runServiceNode(script, args) {
  const child = spawn(serviceNode, ['--disable-warning=ExperimentalWarning', `${checkout}/${script}`, ...args], {
    stdio: 'inherit',
  });
  child.once('error', (error) =>
    fail(`Cannot run ${serviceNode} (${error.message}); remove node_modules and try again.`),
  );
  // The child may get one Ctrl-C three times: from the terminal, from npm and from this process. It treats all signals
  // within half a second as one. This process must stay until the child has ended.
  for (const signal of FORWARDED) process.on(signal, () => child.kill(signal));
  child.once('exit', (code, signal) => process.exit(code ?? 128 + (constants.signals[signal] ?? 0)));
}
