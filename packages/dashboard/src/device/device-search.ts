// The query string of the page that approves logins of programs: the code that the program shows. The name of the
// parameter is the one that RFC 8628 uses.
export type DeviceSearch = { user_code?: string };

/** The rest of a longer text is cut off. A code has only nine characters. */
const LENGTH_MAX = 64;

export const deviceSearch = ({ user_code }: Record<string, unknown>): DeviceSearch =>
  typeof user_code === 'string' && user_code !== '' ? { user_code: user_code.slice(0, LENGTH_MAX) } : {};
