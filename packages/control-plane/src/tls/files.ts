// Reads the certificate from files and reads them again while the service runs. The files are read every few seconds in
// full. Notifications of the kernel would miss some changes: a folder that is replaced through a symbolic link, as
// Kubernetes does with secrets, and files on a network.
import { readFile } from 'node:fs/promises';
import { sleep } from '../concurrency.ts';
import { ConfigError } from '../config-error.ts';
import type { Log } from '../log.ts';
import type { Certificates } from './certificates.ts';
import type { CertificateFiles } from './config.ts';
import type { Pair } from './pair.ts';

/** Loads the files for the first time. Throws `ConfigError`. */
export async function loadCertificate(files: CertificateFiles, certificates: Certificates): Promise<void> {
  try {
    certificates.use(await readPair(files));
  } catch (error) {
    throw new ConfigError(
      `The certificate of SANDBAR_TLS_CERT and SANDBAR_TLS_KEY cannot be used: ${reasonOf(error)}.`,
    );
  }
}

/**
 * Uses a changed pair when it is valid. While a pair is being replaced, the certificate and the key may not fit for a
 * moment, so an invalid pair is reported only when the next look finds the same, and then once. Resolves when `signal`
 * is aborted.
 */
export async function watchCertificate(
  files: CertificateFiles,
  certificates: Certificates,
  { everyMs, log, signal }: { everyMs: number; log: Log; signal: AbortSignal },
): Promise<void> {
  let seen = '';
  let reported = '';
  for (;;) {
    await sleep(everyMs, signal);
    if (signal.aborted) return;
    const found = await readPair(files).catch((error: unknown) => new Error(reasonOf(error)));
    const text = found instanceof Error ? found.message : `${found.cert}${found.key}`;
    const isSettled = text === seen;
    seen = text;
    if (isInUse(found, certificates)) {
      reported = '';
      continue;
    }
    try {
      if (found instanceof Error) throw found;
      const { validTo } = certificates.use(found);
      reported = '';
      log.info({ valid_to: validTo }, 'the certificate was replaced');
    } catch (error) {
      if (!isSettled || reported === text) continue;
      reported = text;
      log.error(`The new certificate is refused, and the old one stays in use: ${reasonOf(error)}.`);
    }
  }
}

async function readPair({ cert, key }: CertificateFiles): Promise<Pair> {
  return { cert: await readFile(cert, 'utf8'), key: await readFile(key, 'utf8') };
}

const isInUse = (found: Pair | Error, { pair }: Certificates): boolean =>
  !(found instanceof Error) && found.cert === pair?.cert && found.key === pair.key;

const reasonOf = (error: unknown): string => (error instanceof Error ? error.message : String(error));
