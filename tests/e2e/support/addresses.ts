// Makes the next machine get an address that was used before. The host agent uses all other addresses of the subnet
// before it gives out an address again, and a test cannot wait for that.
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { restart } from './host.ts';
import { HOME, pidOf } from './service.ts';

/** The first four addresses of a subnet are never given to a machine (host-agent/src/network/addresses.ts). */
const FIRST = 4;

/**
 * Restarts the host agent so that it leases `address` next, or the next free one when a machine has it. The first to
 * get it is a clone in the pool, if there is one, or else the next machine. The address is in the host's /16. The agent
 * reads its counter only when it starts. `before`: how many addresses earlier the agent begins.
 */
export async function takeAddressNext(address: string, before = 0): Promise<void> {
  const [, , third = 0, fourth = 0] = address.split('.').map(Number);
  const next = third * 256 + fourth - FIRST - before;
  // A stopped process cannot overwrite the file.
  process.kill(pidOf('host-agent'), 'SIGSTOP');
  writeFileSync(join(HOME, 'addresses.json'), JSON.stringify({ next }));
  await restart(['host-agent'], 'SIGKILL');
}
