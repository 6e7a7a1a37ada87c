/**
 * Brings an image from where it is into an OCI layout, by skopeo, which speaks to registries and reads archives. What it
 * reads is a stranger's, so it is confined like all that follows.
 */
import { createHash } from 'node:crypto';
import { existsSync, realpathSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import path from 'node:path';
import { type ConfinedCommand, runConfined } from './confinement.ts';
import { chooseImage, indexOf } from './layout-index.ts';
import type { ImportSource } from './reference.ts';

/** The one image that a layout made by {@link copyImage} holds. */
export const LAYOUT_TAG = 'image';
/** Also when an index offers others; a host of another kind has no KVM for this. */
const PLATFORM = ['--override-os', 'linux', '--override-arch', 'amd64'];
/** The index that stands in for that of a layout which is read. */
const CHOSEN = 'index.json';
const MANIFEST_BYTES_MAX = 64 * 1024 * 1024;

export interface FoundImage {
  source: ImportSource;
  /** `sha256:…` of what the reference names now: a manifest, or an index of several. */
  digest: string;
}

/** Looks the reference up. `scratch` is an empty folder that {@link copyImage} gets too. Throws ImageError. */
export async function findImage(source: ImportSource, scratch: string, fileBytes: number): Promise<FoundImage> {
  if (source.kind === 'oci') {
    const chosen = await chooseImage(source.folder, source.tag);
    await writeFile(path.join(scratch, CHOSEN), indexOf(chosen, LAYOUT_TAG));
    return { source, digest: chosen.digest };
  }
  const args = ['inspect', '--raw', ...insecure(source, '--tls-verify=false'), nameOf(source)];
  const manifest = await runSkopeo(source, args, scratch, fileBytes);
  return { source, digest: `sha256:${createHash('sha256').update(manifest).digest('hex')}` };
}

/**
 * Copies the image into `<scratch>/layout`; of a registry, what it has by that digest and not what the tag means by now.
 * Throws ImageError.
 */
export async function copyImage({ source, digest }: FoundImage, scratch: string, fileBytes: number): Promise<void> {
  // umoci reads gzip and plain layers only. What has to be compressed anew is read twice and thrown away.
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
    // A file that root imports may be somebody else's.
    capabilities: ['DAC_READ_SEARCH'],
    fileBytes: Math.max(fileBytes, MANIFEST_BYTES_MAX),
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

/** What an administrator may have set up for registries: names, certificates, mirrors, log-ins. */
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

/** Where `skopeo login`, `podman login` and `docker login` leave it, in that order. */
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
