// The host names by which a browser may address the server. In a DNS rebinding attack, the attacker lets the name of
// their web page point to this computer. The requests of that page have its name as Host and Origin, so the server
// refuses them.
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
