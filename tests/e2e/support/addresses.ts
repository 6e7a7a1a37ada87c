// Makes the next machine get an address that was used before. The control plane uses all other addresses of the subnet
// before it gives out an address again, and a test cannot wait for that.
import { homePaths } from '@sandbar/contract/home.ts';
import { databaseUrlOf } from '@sandbar/service/supervise/definitions.ts';
import pg from 'pg';
import { HOME } from './service.ts';

/** The first four addresses of a subnet are never given to a machine (control-plane/src/hosts/addresses.ts). */
const FIRST = 4;

/** Sets the host's address counter so that the next machine gets `address`. It must be free and in the host's /16. */
export async function takeAddressNext(address: string): Promise<void> {
  const [, , third = 0, fourth = 0] = address.split('.').map(Number);
  const counter = third * 256 + fourth - FIRST - 1;
  const client = new pg.Client(databaseUrlOf(homePaths(HOME).postgresSocketDir));
  await client.connect();
  try {
    await client.query('UPDATE hosts SET address_counter = $1', [counter]);
  } finally {
    await client.end();
  }
}
