// The patterns and formats of text fields, each with a description in words. Error messages contain these words and
// never a regular expression.

export const EMAIL_PATTERN = '^[^@\\s]+@[^@\\s]+$';
export const HOSTNAME_PATTERN = '^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$';
export const EUR_PATTERN = '^-?\\d+\\.\\d{6}$';
/** Whole cents, from 0.00 to 99999.99. */
export const TOP_UP_PATTERN = '^\\d{1,5}(\\.\\d{1,2})?$';
/** A number with six decimals that is not negative. */
export const QUANTITY_PATTERN = '^\\d+\\.\\d{6}$';
export const USAGE_GROUP_PATTERN = '^(day|resource|kind|metadata\\.[\\s\\S]+)$';
export const IDEMPOTENCY_KEY_PATTERN = '^[\\x20-\\x7e]{1,255}$';
export const ENV_NAME_PATTERN = '^[^=\\u0000]+$';
export const NO_NUL_PATTERN = '^[^\\u0000]*$';
export const ABSOLUTE_PATH_PATTERN = '^/';
export const FILE_MODE_PATTERN = '^[0-7]{3,4}$';
/** 1 to 65535, as a text because it is a part of a path. */
export const PORT_PATTERN = '^([1-9]\\d{0,3}|[1-5]\\d{4}|6[0-4]\\d{3}|65[0-4]\\d{2}|655[0-2]\\d|6553[0-5])$';
/** Absolute and in its shortest form: no empty part, no `.` or `..`, no control character, no `/` at the end. */
export const MOUNT_PATH_PATTERN = '^(?:/(?!\\.{1,2}(?:/|$))[^/\\x00-\\x1f\\x7f]+)+$';
/** The unused bits before the padding must be zero, so that the same bytes always have the same text. */
export const BASE64_PATTERN = '^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/][AQgw]==|[A-Za-z0-9+/]{2}[AEIMQUYcgkosw048]=)?$';

/**
 * The code that a person types at a device login: eight consonants without Y, so that no words appear and no two
 * characters look alike (RFC 8628, section 6.1).
 */
export const USER_CODE_PATTERN = '^[B-DF-HJ-NP-TV-XZb-df-hj-np-tv-xz]{4}[ \\-]?[B-DF-HJ-NP-TV-XZb-df-hj-np-tv-xz]{4}$';
export const DEVICE_CODE_PATTERN = '^sbd_[0-9A-Za-z_-]{43}$';

/**
 * `sbh_`, 43 base62 characters (256 random bits), a dot, and the first 32 hexadecimal digits of the SHA-256 of the
 * authority's certificate (DER). With that part the host recognises its control plane, also over plain HTTP.
 */
export const HOST_TOKEN_PATTERN = '^sbh_[0-9A-Za-z]{43}\\.[0-9a-f]{32}$';
/** HOST:PORT, where HOST is a name, an IPv4 address or an IPv6 address in brackets. */
export const HOST_ADDRESS_PATTERN = '^(\\[[0-9A-Fa-f:.]+\\]|[0-9A-Za-z.-]+):[0-9]{1,5}$';

/** 64 lower-case hexadecimal digits. */
export const SHA256_PATTERN = '^[0-9a-f]{64}$';
/** The name of a layer's file in the object store. */
export const LAYER_NAME_PATTERN = '^layer/[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$';
export const WEB_ADDRESS_PATTERN = '^https?://';

/** The parts of a validation message: "must be", `kind`, length limits such as " of at most 9 characters", `rule`. */
type Words = { kind: string; rule?: string };

const PATTERN_WORDS: ReadonlyMap<unknown, Words> = new Map<unknown, Words>([
  [EMAIL_PATTERN, { kind: 'an email address', rule: ' such as name@example.com' }],
  [
    HOSTNAME_PATTERN,
    { kind: 'a host name of at most 63 lower-case letters, digits and hyphens', rule: ', no hyphen first or last' },
  ],
  [EUR_PATTERN, { kind: 'an amount in EUR with six decimals such as 12.340000' }],
  [TOP_UP_PATTERN, { kind: 'an amount in EUR with at most two decimals such as 25 or 12.50' }],
  [QUANTITY_PATTERN, { kind: 'a number with six decimals such as 1.500000' }],
  [USAGE_GROUP_PATTERN, { kind: 'a grouping', rule: ': day, resource, kind or metadata.KEY' }],
  [IDEMPOTENCY_KEY_PATTERN, { kind: 'a text of 1 to 255 printable ASCII characters' }],
  [ENV_NAME_PATTERN, { kind: 'a name that is not empty and has no "=" and no NUL character in it' }],
  [NO_NUL_PATTERN, { kind: 'a string', rule: ' without NUL characters' }],
  [ABSOLUTE_PATH_PATTERN, { kind: 'an absolute path' }],
  [PORT_PATTERN, { kind: 'a TCP port, 1 to 65535' }],
  [FILE_MODE_PATTERN, { kind: 'an octal number of three or four digits such as 0644' }],
  [
    MOUNT_PATH_PATTERN,
    {
      kind: 'an absolute path',
      rule: ' in its shortest form: no "." or ".." in it, no control character, no "/" at its end',
    },
  ],
  [USER_CODE_PATTERN, { kind: 'a code of eight consonants such as WDJB-MJHT' }],
  [DEVICE_CODE_PATTERN, { kind: 'a device code', rule: ' as POST /v1/auth/device/code answers it' }],
  [HOST_TOKEN_PATTERN, { kind: 'a join token', rule: ' as `sandbar admin host token` prints it' }],
  [HOST_ADDRESS_PATTERN, { kind: 'an address such as 10.0.0.5:7072 or [fd00::5]:7072' }],
  [SHA256_PATTERN, { kind: 'a SHA-256 in 64 lower-case hexadecimal digits' }],
  [LAYER_NAME_PATTERN, { kind: 'a name such as layer/019b7c1e-5f6a-7b3c-9d2e-4a1f0c8e7b65' }],
  [WEB_ADDRESS_PATTERN, { kind: 'an address that begins with http:// or https://' }],
  [BASE64_PATTERN, { kind: 'base64 (RFC 4648, with padding, no line breaks)' }],
]);

/** Descriptions of formats. A format already fixes the length, so length limits are not added to these words. */
const FORMAT_WORDS: ReadonlyMap<unknown, string> = new Map<unknown, string>([
  ['uuid', 'a UUID, such as 019b7c1e-5f6a-7b3c-9d2e-4a1f0c8e7b65'],
  ['date-time', 'a date and time as in RFC 3339, such as 2026-01-02T03:04:05Z'],
  ['ipv4', 'an IPv4 address, such as 10.200.0.2'],
]);

/**
 * Describes in words which strings have this pattern or format. `lengths` are the length limits, such as " of at most 9
 * characters", or empty. Undefined if there is neither. A test fails for a pattern or format that is not listed here.
 */
export function describeText(
  { pattern, format }: { pattern?: unknown; format?: unknown },
  lengths: string,
): string | undefined {
  const words = PATTERN_WORDS.get(pattern);
  return words === undefined ? FORMAT_WORDS.get(format) : `${words.kind}${lengths}${words.rule ?? ''}`;
}
