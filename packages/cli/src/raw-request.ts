// Sends one request as the user wrote it, without retries, and returns its answer whatever the status is.
import { ConfigurationError, ConnectionError } from '@sandbar/sdk/errors.ts';
import { UsageError } from './arguments.ts';

export type RawRequest = {
  method: string;
  /** Begins with a slash. */
  path: string;
  query: [name: string, value: string][];
  headers: [name: string, value: string][];
  body: Uint8Array<ArrayBuffer> | undefined;
};

/**
 * Sends the request with the key. Headers of the request replace the default headers. Returns a redirect instead of
 * following it. Throws ConnectionError when there is no answer, UsageError for a request that HTTP does not allow, such
 * as a GET with a body, and ConfigurationError for a key that no header can carry. No error message contains the key.
 */
export async function sendRaw(
  { baseUrl, apiKey }: { baseUrl: string; apiKey: string },
  { method, path, query, headers, body }: RawRequest,
): Promise<Response> {
  const request = build(() => {
    const all = new Headers({
      'user-agent': 'sandbar-cli/0.1.0',
      accept: '*/*',
      // Ask for an uncompressed body, because it is printed as it comes.
      'accept-encoding': 'identity',
      ...(body === undefined ? {} : { 'content-type': 'application/json' }),
    });
    setSecret(all, 'authorization', `Bearer ${apiKey}`, () => new ConfigurationError(BAD_KEY));
    for (const [name, value] of headers) {
      setSecret(all, name, value, () => new UsageError(`the name or the value of the header ${name} is not allowed`));
    }
    const more = query.length === 0 ? '' : `${path.includes('?') ? '&' : '?'}${new URLSearchParams(query)}`;
    return new Request(`${baseUrl}${path}${more}`, {
      method,
      headers: all,
      redirect: 'manual',
      ...(body === undefined ? {} : { body }),
    });
  });
  try {
    return await fetch(request);
  } catch (error) {
    throw new ConnectionError(baseUrl, error);
  }
}

const BAD_KEY = 'the API key has characters that no key has, such as a line break: sandbar login makes a new one';

/** Sets a header. For an invalid value throws `makeError()`, because the message of `Headers` contains the value. */
function setSecret(headers: Headers, name: string, value: string, makeError: () => Error): void {
  try {
    headers.set(name, value);
  } catch {
    throw makeError();
  }
}

/** Turns the TypeError that `Request` throws for a bad method or body into a UsageError. */
function build(make: () => Request): Request {
  try {
    return make();
  } catch (error) {
    if (error instanceof TypeError) throw new UsageError(error.message);
    throw error;
  }
}
