// Paths of files in a machine. Linux names files by bytes that need not be UTF-8, so the dashboard keeps a path
// percent-encoded: in its URL, in queries of the API and in its cache.
import type { Schemas } from '../../api/client.ts';

/** A percent-encoded absolute path. Equal paths have equal text. */
export type EncodedPath = string;

/** The folder that the tab opens first: the home directory of root. */
export const HOME: EncodedPath = '/root';

const UNRESERVED = /[A-Za-z0-9\-._~/]/;
const utf8 = new TextEncoder();

const encodeByte = (byte: number): string => {
  const character = String.fromCharCode(byte);
  return UNRESERVED.test(character) ? character : `%${byte.toString(16).toUpperCase().padStart(2, '0')}`;
};

/** Encodes a path or a name that a person typed or that the API gave as text. */
export const encodePath = (text: string): EncodedPath => Array.from(utf8.encode(text), encodeByte).join('');

/** The exact path of an entry, also when its name is not valid UTF-8. */
export const pathOf = ({ path, path_encoded }: Schemas['FileEntry']): EncodedPath => path_encoded ?? encodePath(path);

/** Reads a path from the URL, which a person may have typed. A `%` without two digits stands for itself. */
export function readPath(address: string): EncodedPath {
  const pieces = address.split(/(%[0-9A-Fa-f]{2})/);
  const encoded = pieces.map((piece, index) => (index % 2 === 1 ? piece.toUpperCase() : encodePath(piece))).join('');
  return `/${encoded.split('/').filter(isName).join('/')}`;
}

/** `//` and `/.` mean the same as `/`. A `..` stays, because Linux applies it after it has followed symlinks. */
const isName = (part: string): boolean => part !== '' && part !== '.';

/** The path as text. Bytes that are not UTF-8 show as U+FFFD. */
export function textOf(path: EncodedPath): string {
  const bytes = path
    .split(/(%[0-9A-F]{2})/)
    .flatMap((piece, index) => (index % 2 === 1 ? [Number.parseInt(piece.slice(1), 16)] : [...utf8.encode(piece)]));
  return new TextDecoder().decode(Uint8Array.from(bytes));
}

/** Resolves a name in a folder. A name that begins with `/` is an absolute path. */
export function resolvePath(folder: EncodedPath, name: string): EncodedPath {
  const encoded = encodePath(name);
  if (encoded.startsWith('/')) return encoded;
  return folder === '/' ? `/${encoded}` : `${folder}/${encoded}`;
}

export const folderOf = (path: EncodedPath): EncodedPath => path.slice(0, path.lastIndexOf('/')) || '/';

/** The folders above a path and the path itself, from the root. */
export function crumbsOf(path: EncodedPath): { name: string; path: EncodedPath }[] {
  const names = path.split('/').filter(Boolean);
  const above = names.map((name, index) => ({ name: textOf(name), path: `/${names.slice(0, index + 1).join('/')}` }));
  return [{ name: '/', path: '/' }, ...above];
}
