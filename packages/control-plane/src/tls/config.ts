// The environment variables of TLS: a certificate in files, or one that the service gets by ACME.
import { isIP } from 'node:net';
import type { Address } from '../config.ts';
import { ConfigError } from '../config-error.ts';
import { allOrNone, type Env, readUrl } from '../environment.ts';

/** The production directory of Let's Encrypt. */
const LETS_ENCRYPT = 'https://acme-v02.api.letsencrypt.org/directory';
const DOMAIN = /^(?=.{1,253}$)([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/;

/** Files with PEM texts. `cert`: the certificate and then those between it and the root. */
export type CertificateFiles = { kind: 'files'; cert: string; key: string };

export type AcmeConfig = {
  kind: 'acme';
  /** The names in the certificate. The first one is in the service's own address. */
  domains: readonly [string, ...string[]];
  email: string;
  /** The URL of the certificate authority's directory. */
  directory: string;
  /** The folder with the account's key and the certificate. */
  folder: string;
  /** Where the authority's http-01 challenges are answered. The authority itself always asks at port 80. */
  httpListen: Address;
};

export type TlsConfig = CertificateFiles | AcmeConfig;

/**
 * Reads the variables. Returns undefined when the service speaks plain HTTP. `folder`: where ACME keeps its files.
 * Throws `ConfigError`.
 */
export function readTlsConfig(
  env: Env,
  folder: string,
  readAddress: (env: Env, name: string, fallback: string) => Address,
): TlsConfig | undefined {
  const [cert, key] = allOrNone(env, ['SANDBAR_TLS_CERT', 'SANDBAR_TLS_KEY']);
  const [domains, email] = allOrNone(env, ['SANDBAR_TLS_ACME_DOMAINS', 'SANDBAR_TLS_ACME_EMAIL']);
  if (cert !== undefined && domains !== undefined) {
    throw new ConfigError('SANDBAR_TLS_CERT and SANDBAR_TLS_ACME_DOMAINS exclude each other: set one of them.');
  }
  if (cert !== undefined && key !== undefined) return { kind: 'files', cert, key };
  if (domains === undefined || email === undefined) return undefined;
  return {
    kind: 'acme',
    domains: readDomains(domains),
    email,
    directory: readUrl(env, 'SANDBAR_TLS_ACME_DIRECTORY', ['https:'], LETS_ENCRYPT).href,
    folder,
    httpListen: readAddress(env, 'SANDBAR_TLS_ACME_LISTEN', '0.0.0.0:80'),
  };
}

function readDomains(text: string): AcmeConfig['domains'] {
  const names = text.split(',').map((name) => name.trim().toLowerCase());
  const [first, ...others] = names;
  if (first !== undefined && names.every((name) => DOMAIN.test(name) && isIP(name) === 0)) return [first, ...others];
  throw new ConfigError(
    `SANDBAR_TLS_ACME_DOMAINS must be domain names with commas, without wildcards, not "${text}". ` +
      'An authority gives a wildcard only over DNS; use SANDBAR_TLS_CERT for one.',
  );
}
