// The names by which a browser may address the server. A web page whose name an attacker has pointed at this computer
// (DNS rebinding) sends that name as Host and Origin, and is refused.
import { networkInterfaces } from 'node:os';
import { localhostAllowedHostnames } from '@modelcontextprotocol/server';

const EVERY_ADDRESS = new Set(['0.0.0.0', '::', '']);

/** Host names without ports for a server that listens at `host`; IPv6 addresses in brackets. */
export function allowedHostsOf(host: string, further: readonly string[]): string[] {
  const own = EVERY_ADDRESS.has(host)
    ? Object.values(networkInterfaces()).flatMap((all) => (all ?? []).map(({ address }) => address))
    : [host];
  return [...localhostAllowedHostnames(), ...[...own, ...further].map(bracketed)];
}

export function bracketed(host: string): string {
  return host.includes(':') && !host.startsWith('[') ? `[${host}]` : host;
}
