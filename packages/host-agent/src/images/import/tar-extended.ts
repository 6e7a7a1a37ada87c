/**
 * Parses the extended headers of a tar archive, which give the next entry a longer name, a longer link target or a
 * larger size. An entry may have headers of POSIX or headers of GNU, each at most once. Otherwise programs would differ
 * in which header they use.
 */

export interface ExtendedHeaders {
  /** The type characters of the headers so far. */
  kinds: string;
  path: string | undefined;
  linkpath: string | undefined;
  size: number | undefined;
}

export function noExtendedHeaders(): ExtendedHeaders {
  return { kinds: '', path: undefined, linkpath: undefined, size: undefined };
}

/**
 * Adds a header of the type `x` (POSIX), `L` or `K` (GNU) to the headers of the next entry. `body` is its content as
 * Latin-1. Throws Error with a sentence when it is damaged or does not fit the other headers.
 */
export function readExtended(headers: ExtendedHeaders, type: 'x' | 'L' | 'K', body: string): void {
  const isMixed = headers.kinds.includes(type) || headers.kinds.includes('x') || (type === 'x' && headers.kinds !== '');
  if (isMixed) throw new Error('an entry has extended headers that contradict each other');
  headers.kinds += type;
  if (type === 'L') headers.path = parseLongName(body);
  if (type === 'K') headers.linkpath = parseLongName(body);
  if (type !== 'x') return;
  const records = parseRecords(body);
  headers.path = records.get('path');
  headers.linkpath = records.get('linkpath');
  const size = records.get('size');
  if (size === undefined) return;
  headers.size = Number(size);
  if (!/^\d+$/.test(size) || !Number.isSafeInteger(headers.size)) throw new Error('a file has an impossible size');
}

/** Parses a name that is terminated by null bytes. */
function parseLongName(body: string): string {
  const name = body.replace(/\0+$/, '');
  if (name === '' || name.includes('\0')) throw new Error('a long name is empty or holds a null byte');
  return name;
}

/** Parses lines of `<length> <key>=<value>\n`. `length` is the length of the whole line. */
function parseRecords(body: string): Map<string, string> {
  const records = new Map<string, string>();
  for (let at = 0; at < body.length; ) {
    const match = /^([1-9]\d{0,6}) /.exec(body.slice(at, at + 8));
    const length = Number(match?.[1]);
    const line = body.slice(at, at + length);
    const equals = line.indexOf('=');
    if (match === null || line.length !== length || equals <= match[0].length || !line.endsWith('\n')) {
      throw new Error('an extended header is damaged');
    }
    addRecord(records, line.slice(match[0].length, equals), line.slice(equals + 1, -1));
    at += length;
  }
  return records;
}

function addRecord(records: Map<string, string>, key: string, value: string): void {
  if (/^GNU\.sparse|^SCHILY\.realsize$/.test(key)) {
    throw new Error('it holds a sparse file, whose size nobody can trust');
  }
  if (records.has(key)) throw new Error('an extended header has a key twice');
  // Some programs treat an empty value as a missing value.
  const isRead = /^(path|linkpath|size)$/.test(key);
  if (key.includes('\0') || (isRead && (value === '' || value.includes('\0')))) {
    throw new Error('an extended header has a value that is empty or holds a null byte');
  }
  records.set(key, value);
}
