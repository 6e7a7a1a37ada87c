// What the host remembers of connections, by address. A machine that gets the address of one that is gone must not get
// its connections with it.
import { CommandError, runCommand } from '../run-command.ts';
import { isInSubnet } from './subnet.ts';

/** conntrack's way to say that there was nothing. */
const NOTHING = /\b0 flow entries have been/;

/** Forgets all connections of an address: those that it opened, and those that were opened to it. */
export async function forgetConnections(address: string): Promise<void> {
  await Promise.all([
    conntrack('-D', '--orig-src', address),
    // What was translated on its way to the machine shows the machine's address in the replies only.
    conntrack('-D', '--reply-src', address),
  ]);
}

/** The addresses of the subnet that the host remembers connections of. */
export async function rememberedAddresses(subnet: string): Promise<Set<string>> {
  const listed = await Promise.all([conntrack('-L', '--orig-src', subnet), conntrack('-L', '--orig-dst', subnet)]);
  const found = [...listed.join('\n').matchAll(/\b(?:src|dst)=([0-9.]+)/g)].map((match) => match[1] ?? '');
  return new Set(found.filter((address) => isInSubnet(address, subnet)));
}

async function conntrack(...args: string[]): Promise<string> {
  try {
    return await runCommand('conntrack', args);
  } catch (error) {
    if (error instanceof CommandError && NOTHING.test(error.message)) return '';
    throw error;
  }
}
