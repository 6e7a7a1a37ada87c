// Checks what the control plane sends as the certificate of this host, before it takes the place of the one in use. A
// wrong one would lock the control plane out.
import { createPrivateKey, X509Certificate } from 'node:crypto';
import { ServiceError } from '@sandbar/contract/errors.ts';
import { type AgentCertificate, hostNameOf } from '@sandbar/contract/fleet.ts';

/** Whether the certificate is the one of this private key (PEM). */
export const fitsKey = (certificate: X509Certificate, key: string): boolean =>
  certificate.checkPrivateKey(createPrivateKey(key));

/**
 * Returns the certificate. Throws `validation_error` unless one of the authorities has issued it, it is for this host
 * alone, and it has not expired.
 */
export function checkCertificate({ certificate, authorities }: AgentCertificate, hostId: string): X509Certificate {
  const own = parse(certificate, 'the certificate');
  const issuers = authorities.map((pem) => parse(pem, 'an authority'));
  const name = hostNameOf(hostId);
  if (!hasOnlyName(own, name)) throw refusal(`the certificate is not for ${name}`);
  if (issuers.some((issuer) => !issuer.ca)) throw refusal('an authority is no certificate authority');
  if (!issuers.some((issuer) => own.checkIssued(issuer) && own.verify(issuer.publicKey)))
    throw refusal('none of the authorities has issued the certificate');
  if (own.validToDate.getTime() < Date.now()) throw refusal(`the certificate expired at ${own.validTo}`);
  return own;
}

/** Whether the certificate is for this URI and for nothing else. */
export function hasOnlyName({ subjectAltName }: X509Certificate, uri: string): boolean {
  // Node puts a name with a comma or a quote in it into quotes, so one long name never looks like this.
  return subjectAltName === `URI:${uri}`;
}

function parse(pem: string, what: string): X509Certificate {
  // X509Certificate would read the first of several certificates and ignore the rest.
  if (pem.split('-----BEGIN ').length !== 2) throw refusal(`${what} must be a single PEM block`);
  try {
    return new X509Certificate(pem);
  } catch {
    throw refusal(`${what} is not X.509 in PEM`);
  }
}

const refusal = (detail: string) => new ServiceError('validation_error', detail);
