// Parses the arguments of `sandbar image import NAME REF`. The rules are strict, because both arguments become parts of
// paths and of command lines.
import { existsSync } from 'node:fs';
import path from 'node:path';
import { ImageError } from '../image-error.ts';
import { isStackName } from '../store.ts';

export type ImportSource =
  /** `name` is host/path without tag or digest. `version` is `:tag` or `@sha256:…`. */
  | { kind: 'registry'; name: string; version: string; isInsecure: boolean }
  | { kind: 'oci'; folder: string; tag: string | undefined }
  | { kind: 'docker-archive'; file: string; reference: string | undefined };

const PART = /^[A-Za-z0-9][A-Za-z0-9._-]*$/;
const VERSION = /^(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(@sha256:[0-9a-f]{64})?$/;
const HOST = String.raw`(?:[A-Za-z0-9][A-Za-z0-9.-]*|\[[0-9a-fA-F:]+\])(?::\d{1,5})?`;
const NAME = '[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*';
const REPOSITORY = new RegExp(`^(?:${HOST}/)?${NAME}(?:/${NAME})*$`);
const LOOPBACK = /^(localhost|127\.\d{1,3}\.\d{1,3}\.\d{1,3}|\[::1\])(:\d+)?$/;

/** Throws ImageError when a stack may not have this name, or when an import must not replace that stack. */
export function checkStackName(name: string): void {
  if (!isStackName(name)) {
    throw new ImageError(
      `"${name}" cannot be the name of an image: use up to 64 small letters, digits, dots, dashes and underscores`,
    );
  }
  if (name === 'base') throw new ImageError('The image "base" is what every host has: import under another name');
}

/**
 * Parses `docker://host/name:tag`, a plain `name:tag` (on docker.io), `oci:DIR[:tag]` or
 * `docker-archive:FILE[:name:tag]`. `isInsecure` allows a registry without a valid certificate; a registry on this
 * machine never needs a certificate. Throws ImageError.
 */
export function parseReference(text: string, isInsecure: boolean): ImportSource {
  if (text.startsWith('oci:')) return parseLayout(text.slice('oci:'.length));
  if (text.startsWith('docker-archive:')) return parseArchive(text.slice('docker-archive:'.length));
  const name = text.startsWith('docker://') ? text.slice('docker://'.length) : text;
  return parseRegistry(name, isInsecure) ?? refuse(text);
}

function parseRegistry(text: string, isInsecure: boolean): ImportSource | undefined {
  const at = text.includes('@') ? text.indexOf('@') : text.length;
  const colon = text.lastIndexOf(':', at);
  const end = colon > text.lastIndexOf('/') ? colon : at;
  const [name, version] = [text.slice(0, end), text.slice(end)];
  if (!REPOSITORY.test(name) || !VERSION.test(version)) return undefined;
  // Like docker, treat the first part as a host name when it looks like a host name.
  const host = name.includes('/') ? name.slice(0, name.indexOf('/')) : '';
  const digest = version.indexOf('@');
  return {
    kind: 'registry',
    name,
    version: digest >= 0 ? version.slice(digest) : version || ':latest',
    isInsecure: isInsecure || LOOPBACK.test(host),
  };
}

function parseLayout(text: string): ImportSource {
  const [folder, tag] = existsSync(text) ? [text, undefined] : splitLast(text);
  if (folder === '' || (tag !== undefined && !PART.test(tag))) refuse(`oci:${text}`);
  if (!existsSync(path.join(folder, 'index.json'))) {
    throw new ImageError(`${folder} is not an OCI layout: it has no index.json`);
  }
  return { kind: 'oci', folder: path.resolve(folder), tag };
}

function parseArchive(text: string): ImportSource {
  const colon = text.indexOf(':');
  const isWhole = colon < 0 || existsSync(text);
  const [file, reference] = isWhole ? [text, undefined] : [text.slice(0, colon), text.slice(colon + 1)];
  if (file === '' || (reference !== undefined && parseRegistry(reference, false) === undefined)) {
    refuse(`docker-archive:${text}`);
  }
  if (!existsSync(file)) throw new ImageError(`There is no file ${file}`);
  return { kind: 'docker-archive', file: path.resolve(file), reference };
}

function splitLast(text: string): [string, string | undefined] {
  const colon = text.lastIndexOf(':');
  return colon > text.lastIndexOf('/') ? [text.slice(0, colon), text.slice(colon + 1)] : [text, undefined];
}

function refuse(text: string): never {
  throw new ImageError(
    `"${text}" names no image: write docker://HOST/NAME:TAG, NAME:TAG (of docker.io), oci:DIR[:TAG] or docker-archive:FILE[:NAME:TAG]`,
  );
}
