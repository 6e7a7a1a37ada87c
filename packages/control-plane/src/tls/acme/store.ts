// The files of ACME: the account's key and the certificate with its key. Only their owner may read them. The
// certificate and its key are one file, so a crash never leaves a key of another certificate.
import { createHash } from 'node:crypto';
import { mkdir, readFile, rename, writeFile } from 'node:fs/promises';
import type { AcmeConfig } from '../config.ts';
import type { Pair } from '../pair.ts';

export class AcmeStore {
  readonly #folder: string;

  /** Each authority has a folder of its own, because it knows neither the accounts nor the certificates of others. */
  constructor({ folder, directory }: AcmeConfig) {
    this.#folder = `${folder}/${createHash('sha256').update(directory).digest('hex').slice(0, 16)}`;
  }

  async accountKey(): Promise<string | undefined> {
    return this.#read('account.pem');
  }

  async saveAccountKey(key: string): Promise<void> {
    await this.#write('account.pem', key);
  }

  async pair(): Promise<Pair | undefined> {
    const text = await this.#read('certificate.pem');
    return text === undefined ? undefined : { cert: text, key: text };
  }

  /** Returns the pair in the form in which it was stored. */
  async savePair({ cert, key }: Pair): Promise<Pair> {
    const text = `${key.trimEnd()}\n${cert}`;
    await this.#write('certificate.pem', text);
    return { cert: text, key: text };
  }

  async #read(name: string): Promise<string | undefined> {
    try {
      return await readFile(`${this.#folder}/${name}`, 'utf8');
    } catch (error) {
      if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return undefined;
      throw error;
    }
  }

  async #write(name: string, text: string): Promise<void> {
    await mkdir(this.#folder, { recursive: true, mode: 0o700 });
    const temporary = `${this.#folder}/${name}.new`;
    await writeFile(temporary, text, { mode: 0o600, flush: true });
    await rename(temporary, `${this.#folder}/${name}`);
  }
}
