// The version of the client, for the User-Agent. A test checks that it equals the version in package.json.
export const VERSION = '0.1.0';
