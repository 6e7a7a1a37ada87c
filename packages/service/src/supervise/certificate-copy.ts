// Gives the control plane its certificate. The key may be in a file that only root can read, and both files may be
// reached through links that the control plane cannot see. So the supervisor copies them into a folder that only root
// can change, for the account of the control plane to read, and copies them again when they change.
import { chmod, chown, mkdir, readFile, rename, writeFile } from 'node:fs/promises';
import { setTimeout as delay } from 'node:timers/promises';
import type { CertificateFiles } from '../config.ts';
import { messageOf, Problem } from '../problem.ts';
import type { UserIds } from '../setup/service-user.ts';

const LOOK_MS = 5_000;

/** The names of the copies in their folder. */
export const COPIES = { cert: 'certificate.pem', key: 'key.pem' } as const;

export type CertificateCopy = {
  files: CertificateFiles;
  /** Root's folder for the copies. */
  folder: string;
  user: UserIds;
  /** Reports that the files cannot be read. */
  report: (line: string) => void;
};

/** Copies the files, and again after each change until `signal` is aborted. Throws Problem when they cannot be read. */
export async function copyCertificate(
  copy: CertificateCopy,
  signal: AbortSignal,
  lookMs: number = LOOK_MS,
): Promise<void> {
  await mkdir(copy.folder, { recursive: true, mode: 0o711 });
  await chmod(copy.folder, 0o711);
  const texts = await readBoth(copy.files).catch((error: unknown) => {
    throw new Problem(`The files of SANDBAR_TLS_CERT and SANDBAR_TLS_KEY cannot be read: ${messageOf(error)}`);
  });
  await writeBoth(copy, texts);
  void keepCopying(copy, texts, signal, lookMs);
}

type Texts = { cert: string; key: string };

async function keepCopying(copy: CertificateCopy, first: Texts, signal: AbortSignal, lookMs: number): Promise<void> {
  let last = first;
  let reported = '';
  for (;;) {
    await delay(lookMs, undefined, { signal, ref: false }).catch(() => undefined);
    if (signal.aborted) return;
    try {
      const texts = await readBoth(copy.files);
      if (texts.cert !== last.cert || texts.key !== last.key) await writeBoth(copy, texts);
      last = texts;
      reported = '';
    } catch (error) {
      const line = `  ! the certificate stays as it is: ${messageOf(error)}`;
      if (line !== reported) copy.report(line);
      reported = line;
    }
  }
}

async function readBoth({ cert, key }: CertificateFiles): Promise<Texts> {
  return { cert: await readFile(cert, 'utf8'), key: await readFile(key, 'utf8') };
}

/** The control plane waits until the copied key belongs to the copied certificate, so one file may change first. */
async function writeBoth({ folder, user }: CertificateCopy, texts: Texts): Promise<void> {
  for (const name of ['cert', 'key'] as const) {
    const file = `${folder}/${COPIES[name]}`;
    await writeFile(`${file}.new`, texts[name], { mode: 0o400 });
    await chown(`${file}.new`, user.uid, user.gid);
    await rename(`${file}.new`, file);
  }
}
