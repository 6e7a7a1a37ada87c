/**
 * Parses the JSON documents of an OCI layout: its index, a manifest, a configuration. When a document has both "layers"
 * and "Layers", programs differ in which key they read. So umoci never gets these documents; checked-layout.ts writes
 * new ones with the values that were parsed here.
 */
import { Refusal } from './refusal.ts';

/** Largest index, manifest or configuration, in bytes; registries have the same limit. */
export const DOCUMENT_MAX = 4 * 1024 * 1024;
const LAYERS_MAX = 512;

export interface Descriptor {
  mediaType: string;
  /** `sha256:` and 64 hex digits. */
  digest: string;
  /** Size of the blob in bytes. */
  size: number;
}

/** The fields of a configuration's `config` object that an import uses. */
const JOB_FIELDS = ['Env', 'User', 'WorkingDir', 'Entrypoint'] as const;
export type JobDefaults = Partial<Record<(typeof JOB_FIELDS)[number], unknown>>;

export interface ImageConfiguration {
  architecture: string;
  os: string;
  /**
   * The job defaults from the `config` object. Objects and nested lists were refused; image-exec.ts checks the types.
   */
  config: JobDefaults;
  /** Digests of the unpacked layers. */
  diffIds: string[];
}

/** Returns the only image of an index. Throws Refusal. */
export function parseIndex(json: string): Descriptor {
  const descriptors = listAt(parseDocument(json), 'manifests').map(toDescriptor);
  const [only] = descriptors;
  if (only === undefined || descriptors.length > 1) throw new Refusal('its index does not name one image');
  return only;
}

/** Returns the parts of an image. Throws Refusal. */
export function parseManifest(json: string): { config: Descriptor; layers: Descriptor[] } {
  const manifest = parseDocument(json);
  const layers = listAt(manifest, 'layers').map(toDescriptor);
  if (layers.length > LAYERS_MAX) throw new Refusal(`it has ${layers.length} layers, and ${LAYERS_MAX} are allowed`);
  return { config: toDescriptor(valueAt(manifest, 'config')), layers };
}

/** Parses a configuration. Throws Refusal. */
export function parseConfiguration(json: string): ImageConfiguration {
  const value = parseDocument(json);
  return {
    architecture: nameAt(value, 'architecture'),
    os: nameAt(value, 'os'),
    config: jobDefaultsOf(valueAt(value, 'config')),
    diffIds: listAt(valueAt(value, 'rootfs'), 'diff_ids').map(toDigest),
  };
}

function jobDefaultsOf(config: unknown): JobDefaults {
  const defaults: JobDefaults = {};
  for (const name of JOB_FIELDS) {
    const value = valueAt(config, name);
    // JSON.parse reads lists that are nested more deeply than JSON.stringify can write.
    const isNested = Array.isArray(value) && value.some((item) => typeof item === 'object');
    if (isNested || (typeof value === 'object' && value !== null && !Array.isArray(value))) {
      throw new Refusal(`"${name}" of its configuration is not valid`);
    }
    if (value !== undefined) defaults[name] = value;
  }
  return defaults;
}

function parseDocument(json: string): unknown {
  try {
    return JSON.parse(json);
  } catch {
    throw new Refusal('its manifest or configuration is not JSON');
  }
}

function toDescriptor(value: unknown): Descriptor {
  const descriptor = readDescriptor(value);
  if (descriptor === undefined) throw new Refusal('its manifest names a part that is not valid');
  return descriptor;
}

/** Returns the descriptor of a blob without anything else that `value` has, or undefined when it is not valid. */
export function readDescriptor(value: unknown): Descriptor | undefined {
  const [mediaType, digest, size] = ['mediaType', 'digest', 'size'].map((name) => valueAt(value, name));
  const isSize = typeof size === 'number' && Number.isSafeInteger(size) && size >= 0;
  return typeof mediaType === 'string' && isDigest(digest) && isSize ? { mediaType, digest, size } : undefined;
}

function toDigest(value: unknown): string {
  if (isDigest(value)) return value;
  throw new Refusal('its configuration names a layer that is not valid');
}

function isDigest(value: unknown): value is string {
  return typeof value === 'string' && /^sha256:[0-9a-f]{64}$/.test(value);
}

function listAt(value: unknown, name: string): unknown[] {
  const list = valueAt(value, name);
  if (Array.isArray(list)) return list;
  throw new Refusal(`its manifest or configuration lacks "${name}"`);
}

/**
 * The name of an architecture or an operating system. It may be shown, so it is short and has ordinary letters only.
 */
function nameAt(value: unknown, name: string): string {
  const found = valueAt(value, name);
  if (typeof found === 'string' && /^[\w.-]{1,64}$/.test(found)) return found;
  throw new Refusal(`its configuration lacks "${name}"`);
}

/** Returns the value of a key of an object from JSON.parse, but no property that every object inherits. */
export function valueAt(value: unknown, name: string): unknown {
  return typeof value === 'object' && value !== null && Object.hasOwn(value, name)
    ? Reflect.get(value, name)
    : undefined;
}
