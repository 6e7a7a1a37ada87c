// Request bodies of any content type and any length, such as uploaded files. A route gets such a body as a stream in
// `request.body`, after authentication, scopes and rate limits. It is neither parsed nor kept in memory.
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { Readable } from 'node:stream';
import type { FastifyInstance, RouteOptions } from 'fastify';

/** An upload that makes no progress for this long is cut off, whichever side is slow, in milliseconds. */
const STALLED_MS = 120_000;
/**
 * How long the rest of a body is read and dropped after an early answer, in milliseconds. Many clients read the answer
 * only when they have sent everything; if the connection closed at once, they would never see the answer.
 */
const LINGER_MS = 5_000;

export class RawBodies {
  readonly #receiving = new WeakSet<Socket>();
  readonly #scopes = new WeakSet<FastifyInstance>();

  /** True while a raw body arrives on this connection. The general time limit on receiving a request is not for it. */
  isReceiving(socket: Socket): boolean {
    return this.#receiving.has(socket);
  }

  /** Makes the start of the service fail if a route with `config.rawBody` was not added with `addRoutes`. */
  install(server: FastifyInstance): void {
    const scopes = this.#scopes;
    server.addHook('onRoute', function (this: FastifyInstance, { method, url, config }: RouteOptions) {
      if ((config?.rawBody ?? false) === scopes.has(this)) return;
      throw new Error(
        `${String(method)} ${url}: RawBodies.addRoutes is for the routes with config.rawBody, and only them.`,
      );
    });
  }

  /** Adds routes with `config.rawBody`. `add` must add them to the scope that it gets. */
  async addRoutes(server: FastifyInstance, add: (scope: FastifyInstance) => void): Promise<void> {
    await server.register(async (scope) => {
      this.#scopes.add(scope);
      scope.removeAllContentTypeParsers();
      scope.addContentTypeParser('*', (_request, _payload, done) => done(null));
      scope.addHook('onRequest', async ({ raw }) => {
        // Fastify refuses a malformed content type even where any type is accepted.
        delete raw.headers['content-type'];
      });
      scope.addHook('preValidation', async (request, reply) => {
        request.body = this.#receive(request.raw, reply.raw);
      });
      add(scope);
    });
  }

  #receive(request: IncomingMessage, response: ServerResponse): RawBody {
    const { socket } = request;
    const body = new RawBody(request);
    this.#receiving.add(socket);
    const stalled = setTimeout(() => socket.destroy(), STALLED_MS).unref();
    body.onProgress = () => stalled.refresh();
    request.once('close', () => {
      clearTimeout(stalled);
      this.#receiving.delete(socket);
    });
    response.once('finish', () => {
      if (request.complete) return;
      body.destroy();
      const linger = setTimeout(() => socket.destroy(), LINGER_MS).unref();
      request.once('close', () => clearTimeout(linger));
    });
    return body;
  }
}

/**
 * The body of a request. Its end is the end of the complete body: if the client disconnects before, the stream is
 * destroyed with an error. Destroying it does not close the connection, so an error can still be answered.
 */
class RawBody extends Readable {
  onProgress: () => void = () => undefined;
  readonly #request: IncomingMessage;

  constructor(request: IncomingMessage) {
    super();
    this.#request = request;
    // Nobody may be reading the body when the client disconnects.
    this.on('error', () => {});
    request.on('error', () => {});
    request.on('data', (chunk: Buffer) => {
      this.onProgress();
      if (!this.destroyed && !this.push(chunk)) request.pause();
    });
    request.once('end', () => this.push(null));
    request.once('close', () => {
      if (!request.complete) this.destroy(new Error('The client disconnected in the middle of the body.'));
    });
    request.pause();
  }

  override _read(): void {
    this.onProgress();
    this.#request.resume();
  }

  override _destroy(error: Error | null, done: (error?: Error | null) => void): void {
    // Read and drop the rest of the body.
    this.#request.resume();
    done(error);
  }
}
