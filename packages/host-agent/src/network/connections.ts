// Deletes entries from the host's connection tracking. A machine must not inherit connections of the machine that had
// its address before.
import { CommandError, runCommand } from '../run-command.ts';
import { isInSubnet } from './subnet.ts';

/** Matches the message of conntrack when no entry matched. */
const NOTHING = /\b0 flow entries have been/;

/** Deletes all connection entries of an address, for connections in either direction. Throws CommandError. */
export async function forgetConnections(address: string): Promise<void> {
  await Promise.all([
    conntrack('-D', '--orig-src', address),
    // Connections that were translated on their way to the machine show its address only in the reply direction.
    conntrack('-D', '--reply-src', address),
  ]);
}

/** Returns the addresses in the subnet that have connection entries. Throws CommandError. */
export async function rememberedAddresses(subnet: string): Promise<Set<string>> {
  const listed = await Promise.all([conntrack('-L', '--orig-src', subnet), conntrack('-L', '--orig-dst', subnet)]);
  const found = [...listed.join('\n').matchAll(/\b(?:src|dst)=([0-9.]+)/g)].map((match) => match[1] ?? '');
  return new Set(found.filter((address) => isInSubnet(address, subnet)));
}

/**
 * Deletes the connection entries of addresses that no machine has now. An agent that died while it removed a machine
 * can leave such entries. Throws CommandError.
 */
export async function forgetDeparted(subnet: string, present: ReadonlySet<string>): Promise<void> {
  const departed = [...(await rememberedAddresses(subnet))].filter((address) => !present.has(address));
  for (const address of departed) await forgetConnections(address);
}

async function conntrack(...args: string[]): Promise<string> {
  try {
    return await runCommand('conntrack', args);
  } catch (error) {
    if (error instanceof CommandError && NOTHING.test(error.message)) return '';
    throw error;
  }
}
