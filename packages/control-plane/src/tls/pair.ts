// A certificate with its key, checked before the server uses it.
import { createPrivateKey, X509Certificate } from 'node:crypto';
import { createSecureContext } from 'node:tls';

/** PEM texts. `cert`: the server's certificate and then those between it and the root. */
export type Pair = { cert: string; key: string };

const PEM_CERTIFICATE = /-----BEGIN CERTIFICATE-----[\s\S]+?-----END CERTIFICATE-----/g;

/**
 * Returns the server's certificate of a pair. Throws an Error that says what is wrong with the pair and never quotes
 * the key.
 */
export function checkPair({ cert, key }: Pair): X509Certificate {
  const [first, ...chain] = (cert.match(PEM_CERTIFICATE) ?? []).map(parseCertificate);
  if (!first) throw new Error('it has no certificate in PEM form');
  if (!first.checkPrivateKey(parseKey(key))) throw new Error('the key belongs to another certificate');
  chain.reduce((issued, issuer) => {
    if (!issued.checkIssued(issuer)) throw new Error('the certificates of the chain are not in order, leaf first');
    return issuer;
  }, first);
  // OpenSSL has demands of its own, such as a minimum length of keys.
  createSecureContext({ cert, key });
  return first;
}

function parseCertificate(pem: string): X509Certificate {
  try {
    return new X509Certificate(pem);
  } catch {
    throw new Error('a certificate in it is damaged');
  }
}

function parseKey(pem: string) {
  try {
    return createPrivateKey(pem);
  } catch {
    throw new Error('the key is no private key in PEM form without a password');
  }
}
