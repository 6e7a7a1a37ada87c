// What a route declares beside its schema. `access` is the one place where authorisation is decided: a route without it
// does not start.
import type { ErrorCode } from '@sandbar/contract/errors.ts';
import type { KeyScope } from '../db/tables.ts';

/**
 * `read`: any credential. `full`: a full key or a dashboard session. `session`: a dashboard session only. `public`: none.
 */
export type Access = 'read' | 'full' | 'session' | 'public';

/**
 * The bucket that a request takes a token from: the account's for changes or for jobs; `sign-in`: that of the client's
 * address and that of `email` in the body. `none` is for what must never be refused for its rate.
 */
export type RateLimit = 'mutating' | 'exec' | 'sign-in' | 'none';

/** Who asks, as authentication found out with one query. */
export type Caller = {
  accountId: string;
  /** The account's own rates, a second; null: the configured ones. */
  rates: { mutating: number | null; exec: number | null };
  /** A session acts as scope full. */
  scope: KeyScope;
  via: 'key' | 'session';
};

/** Examples of the operation, for the document. */
export type Examples = { request?: unknown; response?: unknown };

declare module 'fastify' {
  interface FastifyContextConfig {
    access?: Access;
    /** Default: `mutating` for what needs full or a session and is no GET, `none` for the rest. */
    rateLimit?: RateLimit;
    /** Errors the operation can answer beyond those that its shape implies. */
    errors?: ErrorCode[];
    examples?: Examples;
    /** The answer also comes as server-sent events when the client asks for them. */
    producesEvents?: boolean;
    /** For `access: 'session'`: what a caller with an API key can do instead, as a sentence. */
    sessionHint?: string;
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
