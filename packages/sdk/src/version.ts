// The version of the client, which the User-Agent names. The same as in package.json, as a test checks.
export const VERSION = '0.1.0';
