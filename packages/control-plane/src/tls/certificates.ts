// The certificate that the server uses now. A new one takes effect for new connections; those that are open go on.
import type { X509Certificate } from 'node:crypto';
import type { Server } from 'node:tls';
import { checkPair, type Pair } from './pair.ts';

export class Certificates {
  #pair: Pair | undefined;
  #server: Server | undefined;

  /** Undefined until there is a certificate. Without one, no TLS connection succeeds. */
  get pair(): Pair | undefined {
    return this.#pair;
  }

  /**
   * Uses a pair from now on, and returns its certificate. Throws the errors of `checkPair`, and then changes nothing.
   */
  use(pair: Pair): X509Certificate {
    const certificate = checkPair(pair);
    this.#pair = pair;
    this.#server?.setSecureContext(pair);
    return certificate;
  }

  /** Gives a server the present pair and all later ones. */
  serve(server: Server): void {
    this.#server = server;
    if (this.#pair) server.setSecureContext(this.#pair);
  }
}
