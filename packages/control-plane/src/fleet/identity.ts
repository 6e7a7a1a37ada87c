// The control plane's own certificate, with which it calls the agents of joined hosts. Each replica makes one for
// itself and keeps its key in memory only.
import { createSecureContext, type SecureContext } from 'node:tls';
import { CONTROL_PLANE_NAME } from '@sandbar/contract/fleet.ts';
import type { Db } from '../db/database.ts';
import { type Authorities, readAuthorities, unlockAuthority } from './authorities.ts';
import { makeKeys, signCertificate, toPem } from './x509.ts';

/** For how many days it is valid. It is replaced when half of this is over. */
const OWN_DAYS = 1;
const VALID_MS = OWN_DAYS * 86_400_000;
const REPLACED_MS = VALID_MS / 2;
/** How often the authorities are read, in milliseconds. A new authority signs only when it is older than this. */
const READ_MS = 60_000;

type Own = { context: SecureContext; madeAt: number; trusted: string };

export class ControlPlaneIdentity {
  readonly #db: Db;
  readonly #secret: string;
  readonly #clock: () => number;
  #own: Own | undefined;
  #readAt = Number.NEGATIVE_INFINITY;
  #reading: Promise<SecureContext> | undefined;

  /** `clock`: milliseconds. */
  constructor(db: Db, secret: string, clock: () => number = Date.now) {
    this.#db = db;
    this.#secret = secret;
    this.#clock = clock;
  }

  /** Returns the certificate, its key and the authorities, for a new connection to an agent. */
  context(): Promise<SecureContext> {
    if (this.#own && this.#clock() - this.#readAt < READ_MS) return Promise.resolve(this.#own.context);
    this.#reading ??= this.#read().finally(() => {
      this.#reading = undefined;
    });
    return this.#reading;
  }

  async #read(): Promise<SecureContext> {
    const now = this.#clock();
    const own = await this.#refresh(now).catch((error: unknown) => {
      // While the database is away, hosts are reached with what is known.
      if (this.#own && now - this.#own.madeAt < VALID_MS) return this.#own;
      throw error;
    });
    this.#own = own;
    this.#readAt = now;
    return own.context;
  }

  async #refresh(now: number): Promise<Own> {
    const authorities = await readAuthorities(this.#db, this.#secret);
    const trusted = authorities.trusted.join('');
    const own = this.#own;
    if (own && own.trusted === trusted && now - own.madeAt < REPLACED_MS) return own;
    return { context: await this.#make(authorities), madeAt: now, trusted };
  }

  async #make({ oldest, trusted, now }: Authorities): Promise<SecureContext> {
    const keys = await makeKeys();
    const authority = await unlockAuthority(oldest, this.#secret);
    const holder = { name: CONTROL_PLANE_NAME, role: 'client' } as const;
    const { certificate } = await signCertificate(authority, keys.publicKey, holder, OWN_DAYS, now);
    const key = toPem(keys.privateKey);
    return createSecureContext({ cert: certificate, key, ca: trusted, minVersion: 'TLSv1.3' });
  }
}
