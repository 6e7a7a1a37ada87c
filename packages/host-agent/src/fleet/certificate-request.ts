// Makes the keys of a host, and the requests for their certificates. Node can do neither PKCS #10 nor ASN.1, so the
// requests are made with @peculiar/x509, the maintained library for it in JavaScript. It takes 20 MB of memory and is
// needed a few times a year, so it is loaded at the first request.
import { createPrivateKey, createPublicKey, generateKeyPairSync } from 'node:crypto';
import { hostNameOf } from '@sandbar/contract/fleet.ts';

const ALGORITHM = { name: 'ECDSA', namedCurve: 'P-256' } as const;

/** Returns a new EC P-256 key, PKCS #8 PEM. */
export function makeKey(): string {
  const { privateKey } = generateKeyPairSync('ec', { namedCurve: ALGORITHM.namedCurve });
  return privateKey.export({ type: 'pkcs8', format: 'pem' }).toString();
}

/** Returns a PKCS #10 request for a certificate of the host, PEM, signed with its key. */
export async function makeCertificateRequest(key: string, hostId: string): Promise<string> {
  await import('reflect-metadata');
  const { Pkcs10CertificateRequestGenerator, SubjectAlternativeNameExtension } = await import('@peculiar/x509');
  const privateKey = createPrivateKey(key);
  const request = await Pkcs10CertificateRequestGenerator.create({
    name: `CN=${hostId}`,
    keys: {
      privateKey: privateKey.toCryptoKey(ALGORITHM, true, ['sign']),
      publicKey: createPublicKey(privateKey).toCryptoKey(ALGORITHM, true, ['verify']),
    },
    signingAlgorithm: { name: ALGORITHM.name, hash: 'SHA-256' },
    extensions: [new SubjectAlternativeNameExtension([{ type: 'url', value: hostNameOf(hostId) }])],
  });
  return request.toString('pem');
}
