// The private addresses that a fake host gives to its machines.
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { EnsureMachine } from '@sandbar/contract/host-api.ts';
import type { FakeState } from './state.ts';

/** Returns the address that the machine already has, else the one in the request, else a free one. */
export function addressOf(host: FakeState, id: string, { desired, spec }: EnsureMachine): string {
  const own = host.machines.get(id)?.report.private_ip;
  const others = new Set(
    [...host.machines].filter(([other]) => other !== id).map(([, { report }]) => report.private_ip),
  );
  const named = spec.private_ip;
  if (named !== undefined && desired === 'running' && others.has(named))
    throw new ServiceError('conflict', `another machine of the host has the address ${named}`);
  if (own && named !== undefined && desired === 'running' && named !== own)
    throw new ServiceError('conflict', `the machine has the address ${own} on its host, not ${named}`);
  return own ?? named ?? leaseAddress(host, others);
}

/** Leases a free address, but never the network, the gateway, .2, .3 or the broadcast address. */
export function leaseAddress(host: FakeState, taken: ReadonlySet<string | null>): string {
  const { subnet } = host.info;
  const [base = '', bits] = subnet.split('/');
  const [a = 0, b = 0, c = 0, d = 0] = base.split('.').map(Number);
  const count = 2 ** (32 - Number(bits)) - 5;
  for (let tries = 0; tries < count; tries++) {
    const value = c * 256 + d + 4 + (host.leases++ % count);
    const address = `${a}.${b + Math.floor(value / 65_536)}.${Math.floor(value / 256) % 256}.${value % 256}`;
    if (!taken.has(address)) return address;
  }
  throw new ServiceError(
    'fleet_capacity',
    `the host has no free address: its subnet ${subnet} is limited to ${count} machines, stopped ones included`,
  );
}
