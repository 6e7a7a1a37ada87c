// A host joins: its token is spent, its request is signed, and its row is written, all in one transaction. The names in
// the request are ignored: the control plane decides whom it signs for.
import { createHash } from 'node:crypto';
import { ServiceError } from '@sandbar/contract/errors.ts';
import { type AgentCertificate, type HostJoin, hostNameOf } from '@sandbar/contract/fleet.ts';
import type { App } from '../app.ts';
import { CHANNELS, notify } from '../db/notifications.ts';
import { inTransaction } from '../db/transaction.ts';
import { parseAddress } from './address.ts';
import { HOST_DAYS, readAuthorities, unlockAuthority } from './authorities.ts';
import { recordJoined, spendToken } from './store.ts';
import { hashToken } from './token.ts';
import { readRequest, signCertificate } from './x509.ts';

/**
 * Makes a host part of the fleet, or gives one that is part of it a new address and certificate. The same request may
 * be repeated while its token lives. Throws `validation_error`, and `unauthenticated` for a token that cannot be used.
 */
export async function joinHost(app: App, join: HostJoin): Promise<AgentCertificate> {
  const { secret } = app.config;
  const id = join.host_id.toLowerCase();
  parseAddress(join.address);
  const { key, spki } = await readRequest(join.certificate_request);
  const keyHash = createHash('sha256').update(spki).digest();
  const { signer, trusted, now } = await readAuthorities(app.db, secret);
  const authority = await unlockAuthority(signer, secret);
  const certificate = await inTransaction(app.db, async (tx) => {
    if (!(await spendToken(tx, hashToken(join.token), id, keyHash))) throw unusable();
    const holder = { name: hostNameOf(id), role: 'server' } as const;
    const signed = await signCertificate(authority, key, holder, HOST_DAYS, now);
    await recordJoined(tx, { id, name: join.name, address: join.address }, signed.expiresAt);
    return signed.certificate;
  });
  app.log.info({ host_id: id, name: join.name }, 'a host has joined');
  // Every replica learns of the host, and one of them begins to listen to it.
  await notify(app.db, CHANNELS.hosts);
  await notify(app.db, CHANNELS.leases);
  app.hostTable.expire();
  return { certificate, authorities: trusted };
}

const unusable = (): ServiceError =>
  new ServiceError(
    'unauthenticated',
    'The join token is unknown, expired or used. Make a new one with `sandbar admin host token`.',
  );
