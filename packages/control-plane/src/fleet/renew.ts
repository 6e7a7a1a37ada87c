// Renews the certificates of joined hosts, over the connections that the control plane opens to them.
import { hostNameOf } from '@sandbar/contract/fleet.ts';
import type { App } from '../app.ts';
import type { HostClient } from '../hosts/client.ts';
import { type Authorities, HOST_DAYS, readAuthorities, unlockAuthority } from './authorities.ts';
import { findJoined, recordRenewed } from './store.ts';
import { readRequest, signCertificate } from './x509.ts';

const DAY_MS = 86_400_000;
const VALID_MS = HOST_DAYS * DAY_MS;
/** A certificate is renewed when less than this is left of it, in milliseconds. */
const RENEWED_MS = VALID_MS / 3;

/**
 * Gives the agent of a host a new certificate when less than a third of the present one is left, or when an authority
 * signed it that is being replaced. Does nothing for a host without a certificate. May be repeated at any time, and
 * costs two small queries when there is nothing to do. Throws what the calls to the host throw.
 */
export async function renewAgentCertificate(
  app: App,
  hostId: string,
  client: Pick<HostClient, 'requestCertificate' | 'installCertificate'>,
): Promise<void> {
  const { db, config, log } = app;
  const host = await findJoined(db, hostId);
  if (!host) return;
  const authorities = await readAuthorities(db, config.secret);
  if (!isDue(host.certificateExpiresAt, authorities)) return;
  const { signer, trusted, now } = authorities;
  const { certificate_request } = await client.requestCertificate();
  const { key } = await readRequest(certificate_request);
  const authority = await unlockAuthority(signer, config.secret);
  const holder = { name: hostNameOf(hostId), role: 'server' } as const;
  const { certificate, expiresAt } = await signCertificate(authority, key, holder, HOST_DAYS, now);
  await client.installCertificate({ certificate, authorities: trusted });
  await recordRenewed(db, hostId, expiresAt);
  log.info({ host_id: hostId, expires_at: expiresAt }, 'the certificate of a host was renewed');
}

/**
 * Whether a certificate ends soon, or comes from before the time when the present authority began to sign. The database
 * has only the end of a certificate, from which its beginning follows.
 */
function isDue(expiresAt: Date, { now, trusted, signer, oldest }: Authorities): boolean {
  if (expiresAt.getTime() - now.getTime() < RENEWED_MS) return true;
  if (trusted.length === 1 || signer.id === oldest.id) return false;
  return expiresAt.getTime() - VALID_MS < signer.signsFrom.getTime();
}
