// Makes the certificates of the fleet: EC P-256 keys, and one URI as the only name that counts.
import { KeyObject, webcrypto } from 'node:crypto';
import { ServiceError } from '@sandbar/contract/errors.ts';

type Library = typeof import('@peculiar/x509');
// The types of the library, which are the browser's where those are known. They differ a little from Node's.
type CryptoKeyPair = Parameters<Library['X509CertificateGenerator']['createSelfSigned']>[0]['keys'];
type CryptoKey = CryptoKeyPair['privateKey'];

const KEY_ALGORITHM = { name: 'ECDSA', namedCurve: 'P-256' } as const;
const SIGNATURE = { name: 'ECDSA', hash: 'SHA-256' } as const;
const MINUTE_MS = 60_000;
const DAY_MS = 86_400_000;
const AUTHORITY_YEARS = 10;
/** Certificates are valid from this long ago, in milliseconds, for computers whose clocks are behind. */
const BACKDATED_MS = 60 * MINUTE_MS;

/** An authority that can sign. `certificate` is PEM. */
export type SigningAuthority = { certificate: string; key: CryptoKey };
/** Whom a certificate is for: a host answers connections, and the control plane opens them. */
export type Holder = { name: string; role: 'server' | 'client' };

let loading: Promise<Library> | undefined;

/** Loaded only where hosts join: the library takes 20 MB of memory. */
function loadLibrary(): Promise<Library> {
  loading ??= import('reflect-metadata').then(() => import('@peculiar/x509'));
  return loading;
}

/** Makes a key pair. */
export const makeKeys = (): Promise<CryptoKeyPair> =>
  webcrypto.subtle.generateKey(KEY_ALGORITHM, true, ['sign', 'verify']) as Promise<CryptoKeyPair>;

/** Returns a private key as PKCS #8. */
export const toDer = (key: CryptoKey): Buffer => KeyObject.from(key).export({ type: 'pkcs8', format: 'der' });
export const toPem = (key: CryptoKey): string =>
  KeyObject.from(key).export({ type: 'pkcs8', format: 'pem' }).toString();

/** Reads the private key of an authority. */
export const fromDer = (der: Buffer): Promise<CryptoKey> =>
  webcrypto.subtle.importKey('pkcs8', new Uint8Array(der), KEY_ALGORITHM, false, ['sign']) as Promise<CryptoKey>;

/** Makes the certificate of an authority, PEM. `id` makes its name different from that of all others. */
export async function makeAuthority(id: string, keys: CryptoKeyPair, now: Date): Promise<string> {
  const x509 = await loadLibrary();
  const until = new Date(now);
  until.setUTCFullYear(until.getUTCFullYear() + AUTHORITY_YEARS);
  const certificate = await x509.X509CertificateGenerator.createSelfSigned({
    name: `CN=Sandbar fleet ${id}`,
    keys,
    notBefore: new Date(now.getTime() - BACKDATED_MS),
    notAfter: until,
    signingAlgorithm: SIGNATURE,
    extensions: [
      // It signs certificates of hosts and of the control plane, but not of further authorities.
      new x509.BasicConstraintsExtension(true, 0, true),
      new x509.KeyUsagesExtension(x509.KeyUsageFlags.keyCertSign, true),
      await x509.SubjectKeyIdentifierExtension.create(keys.publicKey),
    ],
  });
  return certificate.toString('pem');
}

/** Signs a certificate for `days`, and returns it as PEM with its end. */
export async function signCertificate(
  authority: SigningAuthority,
  publicKey: CryptoKey,
  { name, role }: Holder,
  days: number,
  now: Date,
): Promise<{ certificate: string; expiresAt: Date }> {
  const x509 = await loadLibrary();
  const issuer = new x509.X509Certificate(authority.certificate);
  const expiresAt = new Date(now.getTime() + days * DAY_MS);
  const purpose = role === 'server' ? x509.ExtendedKeyUsage.serverAuth : x509.ExtendedKeyUsage.clientAuth;
  const certificate = await x509.X509CertificateGenerator.create({
    subject: `CN=${role === 'server' ? 'Sandbar host' : 'Sandbar control plane'}`,
    issuer: issuer.subject,
    publicKey,
    signingKey: authority.key,
    signingAlgorithm: SIGNATURE,
    notBefore: new Date(now.getTime() - BACKDATED_MS),
    notAfter: expiresAt,
    extensions: [
      new x509.BasicConstraintsExtension(false, undefined, true),
      new x509.KeyUsagesExtension(x509.KeyUsageFlags.digitalSignature, true),
      new x509.ExtendedKeyUsageExtension([purpose], true),
      new x509.SubjectAlternativeNameExtension([{ type: 'url', value: name }]),
      await x509.AuthorityKeyIdentifierExtension.create(issuer),
    ],
  });
  return { certificate: certificate.toString('pem'), expiresAt };
}

/**
 * Reads the public key of a certificate request, PEM, and checks that whoever sent it has the private key. Everything
 * else in the request is ignored. Throws `validation_error`.
 */
export async function readRequest(pem: string): Promise<{ key: CryptoKey; spki: Buffer }> {
  const x509 = await loadLibrary();
  try {
    const request = new x509.Pkcs10CertificateRequest(pem);
    const key = await request.publicKey.export(KEY_ALGORITHM, ['verify']);
    if (await request.verify()) return { key, spki: Buffer.from(request.publicKey.rawData) };
  } catch (error) {
    throw badRequest(error);
  }
  throw badRequest(new Error('Its signature is wrong.'));
}

const badRequest = (cause: unknown): ServiceError =>
  new ServiceError(
    'validation_error',
    'certificate_request must be a PKCS #10 request for an EC key on the curve P-256, signed with that key.',
    { cause },
  );
