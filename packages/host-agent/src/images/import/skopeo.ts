/**
 * Copies an image from a registry or an archive into an OCI layout, with skopeo. The image is untrusted, so skopeo runs
 * confined, like every later step.
 */
import { createHash } from 'node:crypto';
import { existsSync, realpathSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import path from 'node:path';
import { ImageError } from '../image-error.ts';
import { type ConfinedCommand, runConfined } from './confinement.ts';
import { chooseImage, indexOf } from './layout-index.ts';
import type { ImportSource } from './reference.ts';

/** The tag of the only image in a layout made by {@link copyImage}. */
export const LAYOUT_TAG = 'image';
/** The platform to fetch, also when an index offers others: hosts are always x86-64. */
const PLATFORM = ['--override-os', 'linux', '--override-arch', 'amd64'];
/** Name of the index file that replaces the source layout's own index. */
const CHOSEN = 'index.json';
const MANIFEST_BYTES_MAX = 64 * 1024 * 1024;

export interface FoundImage {
  source: ImportSource;
  /**
   * `sha256:…` digest of the document that the reference currently names: a manifest, or an index of several manifests.
   */
  digest: string;
}

/**
 * Looks up the digest of the image that the reference names. `scratch` is an empty folder, which {@link copyImage} must
 * get too. `fileBytes` limits the size of written files. Throws ImageError.
 */
export async function findImage(source: ImportSource, scratch: string, fileBytes: number): Promise<FoundImage> {
  const chosen = source.kind === 'oci' ? await chooseImage(source.folder, source.tag) : undefined;
  if (chosen !== undefined) await writeFile(path.join(scratch, CHOSEN), indexOf(chosen, LAYOUT_TAG));
  const args = ['inspect', '--raw', ...insecure(source, '--tls-verify=false'), nameOf(source)];
  const manifest = await runSkopeo(source, args, scratch, fileBytes);
  const digest = `sha256:${createHash('sha256').update(manifest).digest('hex')}`;
  // skopeo does not check the digest of the manifest. Imported disks are cached by the digest, so an image with a wrong
  // digest would pass for another image.
  if (chosen !== undefined && chosen.digest !== digest) {
    throw new ImageError(`The image is refused: its manifest has the digest ${digest} instead of ${chosen.digest}`);
  }
  return { source, digest };
}

/**
 * Copies the image into `<scratch>/layout`. From a registry it fetches the digest that was found, because the tag may
 * name another image by now. Throws ImageError.
 */
export async function copyImage({ source, digest }: FoundImage, scratch: string, fileBytes: number): Promise<void> {
  // umoci reads only gzip and uncompressed layers. Layers in other formats are recompressed at level 1, the fastest,
  // because they are read only twice.
  const asGzip = ['--dest-compress-format', 'gzip', '--dest-compress-level', '1'];
  const args = ['copy', '--quiet', ...asGzip, ...insecure(source, '--src-tls-verify=false')];
  await runSkopeo(source, [...args, nameOf(source, digest), `oci:/work/layout:${LAYOUT_TAG}`], scratch, fileBytes);
}

function runSkopeo(source: ImportSource, args: string[], scratch: string, fileBytes: number): Promise<Buffer> {
  const isRegistry = source.kind === 'registry';
  return runConfined({
    command: 'skopeo',
    args: [...PLATFORM, '--insecure-policy', ...args],
    readOnly: isRegistry ? networkFiles() : localFiles(source, scratch),
    writable: [[scratch, '/work']],
    // Lets root read an image file that belongs to another account.
    capabilities: ['DAC_READ_SEARCH'],
    fileBytes: Math.max(fileBytes, MANIFEST_BYTES_MAX),
    // The layers are compressed here, so an image within the limit has fewer bytes than when it is unpacked.
    total: { folder: scratch, bytes: fileBytes + MANIFEST_BYTES_MAX },
    hasNetwork: isRegistry,
    env: isRegistry ? networkEnvironment() : { TMPDIR: '/work' },
  });
}

function localFiles(source: Exclude<ImportSource, { kind: 'registry' }>, scratch: string): ConfinedCommand['readOnly'] {
  if (source.kind === 'docker-archive') return [[source.file, '/source']];
  return [
    [source.folder, '/source'],
    [path.join(scratch, CHOSEN), '/source/index.json'],
  ];
}

function insecure(source: ImportSource, option: string): string[] {
  return source.kind === 'registry' && source.isInsecure ? [option] : [];
}

function nameOf(source: ImportSource, digest?: string): string {
  if (source.kind === 'registry')
    return `docker://${source.name}${digest === undefined ? source.version : `@${digest}`}`;
  if (source.kind === 'oci') return `oci:/source:${LAYOUT_TAG}`;
  return `docker-archive:/source${source.reference === undefined ? '' : `:${source.reference}`}`;
}

/** Files with an administrator's set-up for registries: name resolution, certificates, mirrors, credentials. */
function networkFiles(): ConfinedCommand['readOnly'] {
  const files = ['/etc/resolv.conf', '/etc/hosts', '/etc/nsswitch.conf', '/etc/ssl', '/etc/pki', '/etc/containers'];
  const login = loginFile();
  return [
    ...[...files, '/etc/docker/certs.d']
      .filter((file) => existsSync(file))
      .map((file) => [realpathSync(file), file] as const),
    ...(login === undefined ? [] : [[login, LOGIN_INSIDE] as const]),
  ];
}

const LOGIN_INSIDE = '/login.json';

function networkEnvironment(): Record<string, string> {
  const proxies = ['http_proxy', 'https_proxy', 'no_proxy', 'HTTP_PROXY', 'HTTPS_PROXY', 'NO_PROXY'];
  const given = proxies.flatMap((name) => (process.env[name] ? [[name, process.env[name]]] : []));
  const login = loginFile() === undefined ? {} : { REGISTRY_AUTH_FILE: LOGIN_INSIDE };
  return { TMPDIR: '/work', ...Object.fromEntries(given), ...login };
}

/** Returns the file with the registry credentials, searched in the same order as by skopeo, podman and docker. */
function loginFile(): string | undefined {
  const { REGISTRY_AUTH_FILE, XDG_RUNTIME_DIR, HOME } = process.env;
  const files = [
    REGISTRY_AUTH_FILE,
    XDG_RUNTIME_DIR && path.join(XDG_RUNTIME_DIR, 'containers', 'auth.json'),
    `/run/containers/${process.getuid?.()}/auth.json`,
    HOME && path.join(HOME, '.docker', 'config.json'),
  ];
  const file = files.find((one) => one && existsSync(one));
  return file ? realpathSync(file) : undefined;
}
