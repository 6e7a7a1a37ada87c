// Makes the next machine get an address that was used before: addresses come round again as late as possible, which no
// test can wait for.
import { homePaths } from '@sandbar/contract/home.ts';
import { databaseUrlOf } from '@sandbar/service/supervise/definitions.ts';
import pg from 'pg';
import { HOME } from './service.ts';

/** The first four addresses of a subnet are nobody's (control-plane/src/hosts/addresses.ts). */
const FIRST = 4;

/** `address` is of the service's only host, a /16, and free. */
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
