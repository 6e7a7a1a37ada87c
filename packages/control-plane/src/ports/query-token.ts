// The query parameter that opens a port in a browser.

export const TOKEN_PARAMETER = 'sandbar_token';

/**
 * Takes the token out of the path and query of a request. `cleanPath` is the rest, unchanged to the byte, because the
 * program may sign or compare its addresses.
 */
export function takeToken(path: string): { token: string | undefined; cleanPath: string } {
  const at = path.indexOf('?');
  if (at < 0) return { token: undefined, cleanPath: path };
  const prefix = `${TOKEN_PARAMETER}=`;
  const parts = path.slice(at + 1).split('&');
  const token = parts.find((part) => part.startsWith(prefix))?.slice(prefix.length);
  if (token === undefined) return { token: undefined, cleanPath: path };
  const rest = parts.filter((part) => !part.startsWith(prefix)).join('&');
  return { token, cleanPath: path.slice(0, at) + (rest === '' ? '' : `?${rest}`) };
}

/**
 * Returns a path as a `Location` at the same host. A path that begins with two slashes would name another host, so it
 * is written with a dot before them, which the browser takes out again.
 */
export const locationOf = (path: string): string => (/^\/[/\\]/.test(path) ? `/.${path}` : path);
