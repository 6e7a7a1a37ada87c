// What a route declares besides its schema. `access` alone decides who may use the route. The service does not start if
// a route has no `access`.
import type { ErrorCode } from '@sandbar/contract/errors.ts';
import type { KeyScope } from '../db/tables.ts';

/**
 * Who may use a route. `read`: any API key or session. `full`: a key of scope full or a dashboard session. `session`: a
 * dashboard session only. `operator`: a dashboard session of an operator account only, within 15 minutes after the
 * person proved who they are. `public`: everybody, without a credential.
 */
export type Access = 'read' | 'full' | 'session' | 'operator' | 'public';

/**
 * The rate buckets from which a request takes a token. `mutating`, `exec` and `files`: the account's bucket for
 * changes, for jobs or for changes of files. `sign-in`: the bucket of the client's address, and the bucket of the
 * session or of the `email` in the body. `password`: the same as `sign-in`, and also a bucket that all clients share
 * that never signed in with this e-mail address. `none`: no bucket, so the request is never refused for its rate.
 */
export type RateLimit = 'mutating' | 'exec' | 'files' | 'sign-in' | 'password' | 'none';

/** Who sent the request. Authentication finds this with one query. */
export type Caller = {
  accountId: string;
  /** Requests a second that the operator set for this account; null: the configured rate of the service. */
  rates: { mutating: number | null; exec: number | null };
  /** A dashboard session has scope full. */
  scope: KeyScope;
  via: 'key' | 'session';
  /** The id of the key or of the session. */
  credentialId: string;
  /**
   * Set for a session of an operator account. `unconfirmed`: the person proved who they are more than 15 minutes ago or
   * never, so they must do it before an operation of the operator.
   */
  operator?: 'confirmed' | 'unconfirmed';
  /** Whether the operator has suspended the account. It can then read, but change nothing. */
  isSuspended: boolean;
};

/** Examples of the operation, for the OpenAPI document. */
export type Examples = { request?: unknown; response?: unknown };

declare module 'fastify' {
  interface FastifyContextConfig {
    access?: Access;
    /**
     * Default: `mutating` for a route with access full, session or operator and a method other than GET, `none` for all
     * others.
     */
    rateLimit?: RateLimit;
    /** Further errors of the operation, besides those that follow from its method, access and schema. */
    errors?: ErrorCode[];
    examples?: Examples;
    /** Whether the answer is sent as server-sent events when the client asks for them. */
    producesEvents?: boolean;
    /** Whether the answer is sent as CSV when the client prefers that (http/csv.ts). */
    producesCsv?: boolean;
    /** The content type of a body that is not JSON: any bytes. */
    binaryRequest?: string;
    /** The content type of an answer that is not JSON: any bytes, which the handler writes as a stream. */
    binaryResponse?: string;
    /** Statuses of a good answer besides that of the schema or 200, with their descriptions. */
    furtherStatuses?: Record<number, { description: string; isBinary: boolean }>;
    /** For `access: 'session'` and `'operator'`: what a caller with an API key can do instead, as a sentence. */
    sessionHint?: string;
    /** True for a route that a suspended account may use although it changes something. */
    allowedWhenSuspended?: boolean;
    /** Whether a request without a body is read as one with an empty object. */
    bodyIsOptional?: boolean;
    /**
     * True if the body is bytes of any content type and any length (http/raw-bodies.ts). `request.body` is a Readable.
     */
    rawBody?: boolean;
    /**
     * True if the route is not part of the JSON API (files, redirects). Then its queries and bodies are not checked.
     */
    lenient?: boolean;
  }
  interface FastifyRequest {
    /** Set by authentication; null on public routes. */
    caller: Caller | null;
    /** The code of the error that the request was answered with; undefined: it was not answered with an error. */
    errorCode: ErrorCode | undefined;
  }
}
