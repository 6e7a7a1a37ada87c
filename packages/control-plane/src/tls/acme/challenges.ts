// The plain HTTP server beside the API over TLS. It answers the authority's challenges, and sends browsers to HTTPS.
import { once } from 'node:events';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { Config } from '../../config.ts';
import { ConfigError } from '../../config-error.ts';
import { plainHttpDetail } from '../../http/errors.ts';
import { destinationOf } from '../../ports/preview-host.ts';
import type { AcmeConfig } from '../config.ts';

const PATH = '/.well-known/acme-challenge/';
const RECEIVE_MS = 10_000;

export class Challenges {
  readonly #config: Config;
  /** What the authority must find, by the token of the challenge. */
  readonly #answers = new Map<string, string>();
  readonly #server: Server;

  constructor(config: Config) {
    this.#config = config;
    this.#server = createServer({ requestTimeout: RECEIVE_MS, headersTimeout: RECEIVE_MS }, (request, response) =>
      this.#answer(request, response),
    );
    this.#server.maxConnections = config.bounds.connectionsPerAddress;
  }

  add(token: string, answer: string): void {
    this.#answers.set(token, answer);
  }

  remove(token: string): void {
    this.#answers.delete(token);
  }

  /** Throws `ConfigError` when the address cannot be used. */
  async listen({ httpListen: { host, port } }: AcmeConfig): Promise<void> {
    this.#server.listen(port, host);
    await once(this.#server, 'listening').catch((error: unknown) => {
      const reason = error instanceof Error && 'code' in error ? error.code : error;
      throw new ConfigError(`SANDBAR_TLS_ACME_LISTEN is ${host}:${port}, and nobody can listen there (${reason}).`);
    });
  }

  close(): void {
    this.#server.closeAllConnections();
    this.#server.close();
  }

  #answer(request: IncomingMessage, response: ServerResponse): void {
    const path = request.url ?? '/';
    response.shouldKeepAlive = false;
    const answer = path.startsWith(PATH) ? this.#answers.get(path.slice(PATH.length)) : undefined;
    if (answer !== undefined) {
      response.writeHead(200, { 'content-type': 'text/plain' }).end(answer);
    } else if (request.method === 'GET' || request.method === 'HEAD') {
      response.writeHead(308, { location: `${this.#originFor(request)}${path.startsWith('/') ? path : '/'}` }).end();
    } else {
      // The client has sent its request over plain HTTP, unprotected. A redirect would hide this mistake from it.
      const body = JSON.stringify({ detail: plainHttpDetail, code: 'validation_error' });
      response.writeHead(400, { 'content-type': 'application/json; charset=utf-8' }).end(body);
    }
  }

  /** Only the host names of ports are taken from the request, so that nobody can be sent to another site. */
  #originFor({ headers: { host } }: IncomingMessage): string {
    const { previewDomain, auth } = this.#config;
    if (destinationOf(host, previewDomain).kind !== 'port') return auth.publicUrl;
    const { port } = new URL(auth.publicUrl);
    return `https://${host?.replace(/:\d*$/, '')}${port === '' ? '' : `:${port}`}`;
  }
}
