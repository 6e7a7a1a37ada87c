// This host as a member of a fleet: its identity, and the renewal of its certificate by the control plane. The key
// never leaves the host. The old identity stays in use until the new one is on disk.
import { X509Certificate } from 'node:crypto';
import { ServiceError } from '@sandbar/contract/errors.ts';
import { type AgentCertificate, hostNameOf } from '@sandbar/contract/fleet.ts';
import { makeCertificateRequest, makeKey } from './certificate-request.ts';
import { checkCertificate, fitsKey, hasOnlyName } from './check-certificate.ts';
import {
  type Identity,
  readIdentity,
  readPendingKey,
  removePendingKey,
  writeIdentity,
  writePendingKey,
} from './fleet-files.ts';

export class FleetMember {
  readonly #home: string;
  readonly #hostId: string;
  #identity: Identity;
  /** Called with each new identity. */
  onRenewed: (identity: Identity) => void = () => {};

  /**
   * Returns undefined when the host has not joined a fleet. Throws `validation_error` when its certificate is for
   * another host, because the data directory was copied from there.
   */
  static open(home: string, hostId: string): FleetMember | undefined {
    const identity = readIdentity(home);
    if (identity === undefined) return undefined;
    if (hasOnlyName(new X509Certificate(identity.certificate), hostNameOf(hostId)))
      return new FleetMember(home, hostId, identity);
    throw new ServiceError(
      'validation_error',
      `the certificate in ${home}/fleet is for another host: run sandbar host leave, and join with a new token`,
    );
  }

  private constructor(home: string, hostId: string, identity: Identity) {
    this.#home = home;
    this.#hostId = hostId;
    this.#identity = identity;
  }

  get identity(): Identity {
    return this.#identity;
  }

  /**
   * Returns a request for a certificate of a new key, PEM. The key stays the same until its certificate arrives, so two
   * replicas may ask at once, and an answer may be lost.
   */
  async requestCertificate(): Promise<string> {
    const kept = readPendingKey(this.#home);
    // After a crash right after the last renewal, the pending key is the one in use.
    const isNew = kept !== undefined && kept !== this.#identity.key;
    const key = isNew ? kept : makeKey();
    if (!isNew) writePendingKey(this.#home, key);
    return makeCertificateRequest(key, this.#hostId);
  }

  /**
   * Puts a certificate into use. May be repeated. Throws `validation_error` when it does not fit the key of the last
   * request or the one in use, this host, or the authorities. Throws `conflict` when the host has left the fleet, and
   * `fleet_capacity` on a full disk.
   */
  install(issued: AgentCertificate): void {
    if (readIdentity(this.#home) === undefined) throw new ServiceError('conflict', 'this host has left the fleet');
    const certificate = checkCertificate(issued, this.#hostId);
    const keys = [readPendingKey(this.#home), this.#identity.key].filter((key) => key !== undefined);
    const key = keys.find((one) => fitsKey(certificate, one));
    if (key === undefined) throw new ServiceError('validation_error', 'the certificate is not for a key of this host');
    const identity = { key, ...issued };
    writeIdentity(this.#home, identity);
    this.#identity = identity;
    this.onRenewed(identity);
    if (key === keys[0]) removePendingKey(this.#home);
  }
}
