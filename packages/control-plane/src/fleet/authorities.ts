// The certificate authorities of the fleet. The first one is made when it is needed. A rotation makes another one:
//
//   1. For two minutes the new authority is trusted, but does not sign. By then every replica has read it.
//   2. It signs the certificates of hosts. The hosts with older certificates are renewed, and learn of it with that.
//      The control plane's own certificate comes from the oldest authority, which every host trusts.
//   3. When no host has an older certificate, the old authority is deleted.
import { ServiceError } from '@sandbar/contract/errors.ts';
import { v7 as uuidv7 } from 'uuid';
import type { App } from '../app.ts';
import type { Db, Tx } from '../db/database.ts';
import { inTransaction } from '../db/transaction.ts';
import { seal, unseal } from './seal.ts';
import { type AuthorityRow, deleteOtherAuthorities, insertAuthority, listAuthorities, lockFleet } from './store.ts';
import { fromDer, makeAuthority, makeKeys, type SigningAuthority, toDer } from './x509.ts';

/** For how many days certificates of hosts are valid. */
export const HOST_DAYS = 30;

export type Authorities = {
  /** The time of the database. */
  now: Date;
  /** The certificates of all authorities, PEM, oldest first. */
  trusted: string[];
  oldest: AuthorityRow;
  /** The one that signs the certificates of hosts. */
  signer: AuthorityRow;
};

/** Returns the authorities. Makes the first one if there is none. */
export async function readAuthorities(db: Db, secret: string): Promise<Authorities> {
  const known = toAuthorities(await listAuthorities(db));
  return known ?? inTransaction(db, (tx) => lockAuthorities(tx, secret));
}

/** The same, and no other transaction changes the authorities until this one ends. */
export async function lockAuthorities(tx: Tx, secret: string): Promise<Authorities> {
  await lockFleet(tx);
  const known = toAuthorities(await listAuthorities(tx));
  if (known) return known;
  await addAuthority(tx, secret);
  const made = toAuthorities(await listAuthorities(tx));
  if (!made) throw new Error('The authority that was just made is not there.');
  return made;
}

/** Begins a rotation. Throws `conflict` while the last one goes on. */
export async function rotateAuthority(db: Db, secret: string): Promise<void> {
  await inTransaction(db, async (tx) => {
    const { trusted } = await lockAuthorities(tx, secret);
    if (trusted.length > 1) {
      throw new ServiceError('conflict', 'The last rotation goes on: hosts have certificates of the old authority.');
    }
    await addAuthority(tx, secret);
  });
}

/** Deletes the old authority at the end of a rotation, when no host needs it. */
export async function retireAuthorities({ db, log }: App): Promise<void> {
  await inTransaction(db, async (tx) => {
    await lockFleet(tx);
    const known = toAuthorities(await listAuthorities(tx));
    if (!known || known.signer.certificate !== known.trusted.at(-1)) return;
    const deleted = await deleteOtherAuthorities(tx, known.signer.id, HOST_DAYS);
    if (deleted > 0) log.info('every host has a certificate of the new authority; the old one is deleted');
  });
}

/** Decrypts the key of an authority. Throws `WrongSecret`. */
export async function unlockAuthority(
  { id, certificate, sealed_key }: AuthorityRow,
  secret: string,
): Promise<SigningAuthority> {
  return { certificate, key: await fromDer(unseal(sealed_key, secret, id)) };
}

async function addAuthority(tx: Tx, secret: string): Promise<void> {
  const id = uuidv7();
  const keys = await makeKeys();
  const certificate = await makeAuthority(id, keys, new Date());
  await insertAuthority(tx, id, certificate, seal(toDer(keys.privateKey), secret, id));
}

function toAuthorities(rows: readonly AuthorityRow[]): Authorities | undefined {
  const [oldest] = rows;
  if (!oldest) return undefined;
  const signer = rows.findLast((row) => row.signsFrom <= row.now) ?? oldest;
  return { now: oldest.now, trusted: rows.map(({ certificate }) => certificate), oldest, signer };
}
