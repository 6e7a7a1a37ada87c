// Starts a guest gateway for a test, and finds its process.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { Gateway } from '../../src/gateway/gateway.ts';

/** Starts a gateway in a data directory. What it logs as an error, such as its end, is added to `ends`. */
export async function startGateway(home: string, ends: unknown[] = [], isRoot = process.getuid?.() === 0) {
  const log = { error: (details: object) => void ends.push(details) };
  const gateway = await Gateway.start({ home, dir: join(home, 'run/gateway'), isRoot, log });
  await gateway.ready();
  return gateway;
}

/** Returns the pid of the process that runs the gateway's code. In a jail it is a child of the started command. */
export function gatewayPid(gateway: Gateway): number {
  return programPid(gateway.pid);
}

/** Returns the pid of the program that a command runs in a jail. It is the command's last descendant. */
export function programPid(commandPid: number | undefined): number {
  let pid = commandPid ?? Number.NaN;
  for (let child = pid; Number.isInteger(child) && child > 0; ) {
    pid = child;
    child = Number.parseInt(readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8'), 10);
  }
  return pid;
}
