// A certificate authority of the tests.
import 'reflect-metadata';
import { webcrypto } from 'node:crypto';
import * as x509 from '@peculiar/x509';
import type { Pair } from '../../src/tls/pair.ts';

const ALGORITHM = { name: 'ECDSA', namedCurve: 'P-256', hash: 'SHA-256' };
const DAY_MS = 86_400_000;

export type Authority = {
  /** The authority's own certificate, PEM. */
  ca: string;
  /** Issues a certificate with a new key. */
  issue(names: readonly string[], life?: { fromMs: number; toMs: number }): Promise<Pair>;
};

const newKeys = () => webcrypto.subtle.generateKey(ALGORITHM, true, ['sign', 'verify']);
const newSerial = () => Buffer.from(webcrypto.getRandomValues(new Uint8Array(8))).toString('hex');

async function keyText({ privateKey }: webcrypto.CryptoKeyPair): Promise<string> {
  const der = Buffer.from(await webcrypto.subtle.exportKey('pkcs8', privateKey)).toString('base64');
  return `-----BEGIN PRIVATE KEY-----\n${der.replace(/.{64}/g, '$&\n')}\n-----END PRIVATE KEY-----\n`;
}

/** Makes an authority. Its certificates are valid from a day ago for ten days, unless `issue` gets other times. */
export async function makeAuthority(name = 'Authority of the tests'): Promise<Authority> {
  const keys = await newKeys();
  const [notBefore, notAfter] = [new Date(Date.now() - 2 * DAY_MS), new Date(Date.now() + 20 * DAY_MS)];
  const authority = await x509.X509CertificateGenerator.createSelfSigned({
    ...{ serialNumber: newSerial(), name: `CN=${name}`, notBefore, notAfter, keys, signingAlgorithm: ALGORITHM },
    extensions: [
      new x509.BasicConstraintsExtension(true, undefined, true),
      new x509.KeyUsagesExtension(x509.KeyUsageFlags.keyCertSign, true),
    ],
  });
  const issue: Authority['issue'] = async (names, life) => {
    const ours = await newKeys();
    const { fromMs, toMs } = life ?? { fromMs: Date.now() - DAY_MS, toMs: Date.now() + 9 * DAY_MS };
    const certificate = await x509.X509CertificateGenerator.create({
      ...{ serialNumber: newSerial(), subject: `CN=${names[0]}`, issuer: authority.subject },
      ...{ notBefore: new Date(fromMs), notAfter: new Date(toMs), signingAlgorithm: ALGORITHM },
      ...{ publicKey: ours.publicKey, signingKey: keys.privateKey },
      extensions: [
        new x509.SubjectAlternativeNameExtension(
          names.map((value) => ({ type: /^[\d.]+$/.test(value) ? 'ip' : 'dns', value })),
        ),
      ],
    });
    return { cert: `${certificate.toString('pem')}\n`, key: await keyText(ours) };
  };
  return { ca: `${authority.toString('pem')}\n`, issue };
}
