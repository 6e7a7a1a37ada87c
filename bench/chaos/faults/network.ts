// Breaks the network between the control planes and the host. The load may see 503 and may have to wait. Machines and
// their jobs go on, because a cut ends before the host's lease does.
import type { Fault } from '../fault.ts';

/** Drops all packets. Connections stay open and are silent. */
export const cutNetwork: Fault = async ({ bed }) => {
  const { network } = bed.fleet;
  network.cut(bed.host);
  return { about: 'no packet passes', end: async () => network.heal(bed.host) };
};

/** Drops a tenth of the packets, and all above a rate. */
export const slowNetwork: Fault = async ({ bed }) => {
  const { network } = bed.fleet;
  network.slow(bed.host);
  return { about: 'packets are lost', end: async () => network.hasten(bed.host) };
};
