// A small certificate authority, as the control plane has one: it signs the requests of hosts, and certificates of its
// own.
import 'reflect-metadata';
import { createHash, createPublicKey, generateKeyPairSync, type KeyObject, X509Certificate } from 'node:crypto';
import {
  BasicConstraintsExtension,
  type X509Certificate as Issued,
  KeyUsageFlags,
  KeyUsagesExtension,
  Pkcs10CertificateRequest,
  SubjectAlternativeNameExtension,
  X509CertificateGenerator,
} from '@peculiar/x509';
import type { AgentCertificate } from '@sandbar/contract/fleet.ts';

const ALGORITHM = { name: 'ECDSA', namedCurve: 'P-256' };
const SIGNING = { name: 'ECDSA', hash: 'SHA-256' };
const YEAR_MS = 365 * 24 * 3600 * 1000;

const newKey = () => generateKeyPairSync('ec', { namedCurve: 'P-256' }).privateKey;
const pemOf = (key: KeyObject) => key.export({ type: 'pkcs8', format: 'pem' }).toString();
const signer = (key: KeyObject) => key.toCryptoKey(ALGORITHM, true, ['sign']);
const verifier = (key: KeyObject) => createPublicKey(key).toCryptoKey(ALGORITHM, true, ['verify']);

/** Returns the public key of a request. */
export const publicKeyIn = (request: string): string =>
  new Pkcs10CertificateRequest(request).publicKey.toString('base64');

/** A key and its certificate, PEM. */
export type Pair = { key: string; cert: string };

export class TestAuthority {
  readonly #key: KeyObject;
  readonly #certificate: Issued;

  private constructor(key: KeyObject, certificate: Issued) {
    this.#key = key;
    this.#certificate = certificate;
  }

  static async make(name = 'fleet'): Promise<TestAuthority> {
    const key = newKey();
    const certificate = await X509CertificateGenerator.createSelfSigned({
      name: `CN=${name}`,
      keys: { privateKey: signer(key), publicKey: verifier(key) },
      signingAlgorithm: SIGNING,
      notAfter: new Date(Date.now() + YEAR_MS),
      extensions: [
        new BasicConstraintsExtension(true, 0, true),
        new KeyUsagesExtension(KeyUsageFlags.keyCertSign, true),
      ],
    });
    return new TestAuthority(key, certificate);
  }

  get pem(): string {
    return this.#certificate.toString('pem');
  }

  /** The part of a join token that names this authority. */
  get fingerprint(): string {
    return createHash('sha256').update(new X509Certificate(this.pem).raw).digest('hex').slice(0, 32);
  }

  /** Signs a request, for these URIs and no others. */
  async sign(request: string, uris: string[], notAfter = new Date(Date.now() + YEAR_MS)): Promise<AgentCertificate> {
    const { publicKey } = new Pkcs10CertificateRequest(request);
    return { certificate: await this.#issue(publicKey, uris, notAfter), authorities: [this.pem] };
  }

  /** Makes a key with a certificate for these URIs. */
  async pair(...uris: string[]): Promise<Pair> {
    const key = newKey();
    return { key: pemOf(key), cert: await this.#issue(verifier(key), uris, new Date(Date.now() + YEAR_MS)) };
  }

  async #issue(
    publicKey: Parameters<typeof X509CertificateGenerator.create>[0]['publicKey'],
    uris: string[],
    notAfter: Date,
  ) {
    const certificate = await X509CertificateGenerator.create({
      subject: 'CN=test',
      issuer: this.#certificate.subject,
      publicKey,
      signingKey: signer(this.#key),
      signingAlgorithm: SIGNING,
      notAfter,
      extensions: [new SubjectAlternativeNameExtension(uris.map((value) => ({ type: 'url' as const, value })))],
    });
    return certificate.toString('pem');
  }
}
