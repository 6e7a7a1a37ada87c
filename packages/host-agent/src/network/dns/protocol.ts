// What the agent and the process of the name relay agree on: the descriptors that the process inherits, and the
// messages. The agent sends the host's name servers whenever they change, as a line of JSON. The relay sends one byte
// when it is ready, and nothing else: so the agent reads nothing that a machine could have influenced.

/** The relay's descriptors. */
export const CHANNEL_FD = 3;
export const UDP_FD = 4;
export const TCP_FD = 5;

/** `servers`: IPv4 or IPv6 addresses, at least one. */
export function encodeNameServers(servers: readonly string[]): string {
  return `${JSON.stringify(servers)}\n`;
}

export function decodeNameServers(line: string): readonly string[] {
  return JSON.parse(line) as string[];
}
