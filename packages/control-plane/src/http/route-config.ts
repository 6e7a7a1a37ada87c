// What a route declares beside its schema. `access` is the one place where authorisation is decided: a route without it
// does not start.
import type { ErrorCode } from '@sandbar/contract/errors.ts';
import type { Caller } from '../api-keys/store.ts';

/** `read`: either scope. `full`: a full key. `public`: no credential. */
export type Access = 'read' | 'full' | 'public';

/** Examples of the operation, for the document. */
export type Examples = { request?: unknown; response?: unknown };

declare module 'fastify' {
  interface FastifyContextConfig {
    access?: Access;
    /** Errors the operation can answer beyond those that its shape implies. */
    errors?: ErrorCode[];
    examples?: Examples;
    /** The answer also comes as server-sent events when the client asks for them. */
    producesEvents?: boolean;
    /** No body at all means an empty object. */
    bodyIsOptional?: boolean;
    /** The route is no part of the strict JSON API (files, redirects): queries and bodies are its own business. */
    lenient?: boolean;
  }
  interface FastifyRequest {
    /** Set by authentication; null on public routes. */
    caller: Caller | null;
  }
}
