// Reads the address of an agent.
import { ServiceError } from '@sandbar/contract/errors.ts';

const PORT_MAX = 65_535;

/** Reads HOST:PORT; an IPv6 address is in brackets. Throws `validation_error` for a port that does not exist. */
export function parseAddress(address: string): { host: string; port: number } {
  const colon = address.lastIndexOf(':');
  const port = Number(address.slice(colon + 1));
  if (!(port >= 1 && port <= PORT_MAX)) {
    throw new ServiceError('validation_error', `address must end with a port from 1 to ${PORT_MAX}.`);
  }
  return { host: address.slice(0, colon).replace(/^\[|\]$/g, ''), port };
}
