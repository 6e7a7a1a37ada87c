// Checks that the service's addresses can be listened on, before anything is started.
import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { promisify } from 'node:util';
import { type Address, formatAddress } from '../config.ts';
import { hasErrorCode, messageOf, Problem } from '../problem.ts';
import { commandLineOf } from './process-identity.ts';

/** Throws Problem that names the variable and, when `ss` shows it, the process that uses the address. */
export async function assertPortFree(variable: string, address: Address): Promise<void> {
  const server = createServer();
  try {
    server.listen({ host: address.host, port: address.port, exclusive: true });
    await once(server, 'listening');
  } catch (error) {
    throw await describe(variable, address, error);
  } finally {
    server.close();
  }
}

/** Whether only root, or a process with the capability for it, may listen on a port. */
export function isPrivileged({ port }: Address): boolean {
  return port < Number(readFileSync('/proc/sys/net/ipv4/ip_unprivileged_port_start', 'utf8'));
}

async function describe(variable: string, address: Address, error: unknown): Promise<Problem> {
  const where = formatAddress(address);
  if (hasErrorCode(error, 'EADDRINUSE')) {
    const holder = await holderOf(address.port);
    return new Problem(`${where} is in use${holder}: end what listens there or set ${variable} to another address`);
  }
  if (hasErrorCode(error, 'EADDRNOTAVAIL', 'ENOTFOUND')) {
    return new Problem(`${variable} is ${where}, which is no address of this machine: set it to one that is`);
  }
  return new Problem(`Cannot listen on ${where} (${messageOf(error)}): set ${variable} to another address`);
}

async function holderOf(port: number): Promise<string> {
  const sockets = await promisify(execFile)('ss', ['-Hltnp', `sport = :${port}`]).catch(() => undefined);
  const pid = /pid=(\d+)/.exec(sockets?.stdout ?? '')?.[1];
  if (pid === undefined) return '';
  const command = commandLineOf(Number(pid)).join(' ');
  return ` by process ${pid} (${command.length > 80 ? `${command.slice(0, 77)}...` : command})`;
}
