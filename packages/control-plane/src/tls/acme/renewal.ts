// When a certificate has to be replaced.
import type { X509Certificate } from 'node:crypto';

/** Returns when a certificate has a third of its life left, in milliseconds since 1970. */
export function renewAt({ validFromDate, validToDate }: X509Certificate): number {
  const [from, to] = [validFromDate.getTime(), validToDate.getTime()];
  return to - (to - from) / 3;
}

/** Whether a certificate is for all these names. */
export const coversAll = (certificate: X509Certificate, domains: readonly string[]): boolean =>
  domains.every((domain) => certificate.checkHost(domain) !== undefined);
