// Provides the certificate of the configuration and keeps it up to date while the service runs.
import type { Config } from '../config.ts';
import type { Log } from '../log.ts';
import { keepAcmeCertificate } from './acme/keep.ts';
import type { Certificates } from './certificates.ts';
import type { TlsConfig } from './config.ts';
import { loadCertificate, watchCertificate } from './files.ts';

export type Keeping = { config: Config; log: Log; signal: AbortSignal };

export type CertificateKeeper = {
  /** Resolves when nothing is under way any more. Abort `signal` before. */
  stop(): Promise<void>;
};

/** Resolves when the certificate can be used, or, with ACME, when it can be asked for. Throws `ConfigError`. */
export async function keepCertificate(
  tls: TlsConfig,
  certificates: Certificates,
  keeping: Keeping,
): Promise<CertificateKeeper> {
  if (tls.kind === 'acme') return keepAcmeCertificate(tls, certificates, keeping);
  await loadCertificate(tls, certificates);
  const { config, log, signal } = keeping;
  const watching = watchCertificate(tls, certificates, { everyMs: config.timing.certificateMs, log, signal });
  return { stop: () => watching };
}
