// Keeps a certificate from an authority: uses the stored one, and orders a new one when there is none for the domains
// or when a third of its life is left. A failed order is repeated after growing pauses, because authorities limit
// failures. Until the first order succeeds, the service runs, but no TLS connection succeeds.
import type { X509Certificate } from 'node:crypto';
import { sleep } from '../../concurrency.ts';
import type { Certificates } from '../certificates.ts';
import type { AcmeConfig } from '../config.ts';
import type { CertificateKeeper, Keeping } from '../keep.ts';
import { Challenges } from './challenges.ts';
import { orderCertificate } from './order.ts';
import { coversAll, renewAt } from './renewal.ts';
import { AcmeStore } from './store.ts';

const RETRY_MS = { first: 60_000, longest: 6 * 3600_000 };
/** The longest sleep, so that a clock that is set forward is noticed. */
const LOOK_MS = 3600_000;

/** Resolves when challenges can be answered. Throws `ConfigError`. */
export async function keepAcmeCertificate(
  acme: AcmeConfig,
  certificates: Certificates,
  keeping: Keeping,
): Promise<CertificateKeeper> {
  const challenges = new Challenges(keeping.config);
  await challenges.listen(acme);
  const store = new AcmeStore(acme);
  const stored = await store.pair();
  let certificate: X509Certificate | undefined;
  try {
    certificate = stored && certificates.use(stored);
  } catch (error) {
    keeping.log.warn({ err: error }, 'the stored certificate cannot be used, so another one is ordered');
  }
  if (certificate && !coversAll(certificate, acme.domains)) certificate = undefined;
  void renewForEver(acme, { certificates, store, challenges }, certificate, keeping);
  return { stop: async () => challenges.close() };
}

type Parts = { certificates: Certificates; store: AcmeStore; challenges: Challenges };

async function renewForEver(
  acme: AcmeConfig,
  { certificates, store, challenges }: Parts,
  first: X509Certificate | undefined,
  { log, signal }: Keeping,
): Promise<void> {
  let certificate = first;
  let pauseMs = RETRY_MS.first;
  while (!signal.aborted) {
    const waitMs = certificate ? renewAt(certificate) - Date.now() : 0;
    if (waitMs > 0) {
      await sleep(Math.min(waitMs, LOOK_MS), signal);
      continue;
    }
    try {
      const pair = await store.savePair(await orderCertificate(acme, store, challenges));
      certificate = certificates.use(pair);
      pauseMs = RETRY_MS.first;
      log.info({ domains: acme.domains, valid_to: certificate.validTo }, 'a certificate was issued');
    } catch (error) {
      log.error({ err: error, retry_sec: pauseMs / 1000 }, 'the authority issued no certificate');
      await sleep(pauseMs, signal);
      pauseMs = Math.min(2 * pauseMs, RETRY_MS.longest);
    }
  }
}
