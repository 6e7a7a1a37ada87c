// Template files: memory, device state and disk of a VM that was saved while it waited for its identity, and a manifest
// with their checksums. The manifest is written last, so a folder without one is unfinished.
import { createHash } from 'node:crypto';
import { closeSync, existsSync, readdirSync, rmSync, statSync, utimesSync } from 'node:fs';
import { open, readFile, rename } from 'node:fs/promises';
import { join } from 'node:path';
import type { Restore } from '../hypervisor/driver.ts';
import { readRecord, writeRecord } from '../storage/record-file.ts';
import type { Shape } from './shape.ts';
import { loadMemory, type TemplateMemory } from './template-memory.ts';

const MANIFEST = 'manifest.json';
const UNFINISHED = '.making-';
const PARTS = { memory: 'memory', state: 'state', disk: 'disk.qcow2' } as const;

type Manifest = {
  key: string;
  shape: Shape;
  sha256: { memory: string; state: string; disk: string };
};

/** A loaded template, from which VMs can be restored. */
export type Template = {
  key: string;
  shape: Shape;
  restore: Restore;
  diskPath: string;
  /** Host memory that the loaded template occupies, in bytes. */
  usedBytes: number;
};

export type TemplatePaths = { dir: string; memory: string; state: string; disk: string };

/** Returns the paths at which a new template is made. */
export function unfinishedPaths(templatesDir: string, name: string): TemplatePaths {
  return pathsOf(join(templatesDir, `${UNFINISHED}${name}`));
}

/**
 * Turns the written files into a template and loads it. All files are durable before the folder gets its final name.
 * Throws system errors.
 */
export async function finishTemplate(
  templatesDir: string,
  paths: TemplatePaths,
  key: string,
  shape: Shape,
): Promise<Template> {
  const memory = await loadMemory(paths.memory, shape.memoryMb * 1024 * 1024);
  try {
    const sha256 = { memory: memory.sha256, state: await hashOf(paths.state), disk: await hashOf(paths.disk) };
    const manifest: Manifest = { key, shape, sha256 };
    for (const path of [paths.memory, paths.state, paths.disk]) await sync(path);
    writeRecord(join(paths.dir, MANIFEST), manifest);
    await sync(join(paths.dir, MANIFEST));
    const dir = join(templatesDir, key);
    rmSync(dir, { recursive: true, force: true });
    await rename(paths.dir, dir);
    return toTemplate(pathsOf(dir), manifest, memory);
  } catch (error) {
    closeSync(memory.fd);
    throw error;
  }
}

/**
 * Loads a template. First checks its files against the manifest, and the manifest against this host: `keyOf` returns
 * the key that a template of a shape has on this host now. Throws an error that says what is wrong with the template.
 */
export async function loadTemplate(
  templatesDir: string,
  key: string,
  keyOf: (shape: Shape) => string,
): Promise<Template> {
  const paths = pathsOf(join(templatesDir, key));
  const manifest = readRecord<Manifest>(join(paths.dir, MANIFEST));
  if (manifest?.key !== key) throw new Error('its manifest is missing or belongs to another template');
  if (keyOf(manifest.shape) !== key) throw new Error('this host has changed since the template was made');
  for (const part of ['state', 'disk'] as const) {
    if ((await hashOf(paths[part])) !== manifest.sha256[part]) throw new Error(`its ${part} is not what was saved`);
  }
  const memory = await loadMemory(paths.memory, manifest.shape.memoryMb * 1024 * 1024);
  if (memory.sha256 !== manifest.sha256.memory) {
    closeSync(memory.fd);
    throw new Error('its memory is not what was saved');
  }
  return toTemplate(paths, manifest, memory);
}

/** Lists the finished templates, most recently used first. `usedAt`: ms since 1970. `diskBytes`: space on disk. */
export function listTemplates(templatesDir: string): { key: string; usedAt: number; diskBytes: number }[] {
  return readdirSync(templatesDir)
    .filter((name) => !name.startsWith('.') && existsSync(join(templatesDir, name, MANIFEST)))
    .map((key) => ({ key, usedAt: statSync(join(templatesDir, key, MANIFEST)).mtimeMs }))
    .sort((a, b) => b.usedAt - a.usedAt)
    .map((template) => ({ ...template, diskBytes: diskBytesOf(join(templatesDir, template.key)) }));
}

/**
 * Returns the paths of the layers below each finished template, by key. Leaves out templates with an unreadable
 * manifest, because they will not be used.
 */
export function layersOfTemplates(templatesDir: string): Map<string, readonly string[]> {
  const found = new Map<string, readonly string[]>();
  for (const key of existsSync(templatesDir) ? readdirSync(templatesDir) : []) {
    try {
      const paths = readRecord<Manifest>(join(templatesDir, key, MANIFEST))?.shape.layerPaths;
      if (paths) found.set(key, paths);
    } catch {
      // The next attempt to load this template finds it broken and removes it.
    }
  }
  return found;
}

/** Records that a template was used, because the least recently used one is removed first. `usedAt`: ms since 1970. */
export function touchTemplate(templatesDir: string, key: string, usedAt: number): void {
  try {
    utimesSync(join(templatesDir, key, MANIFEST), usedAt / 1000, usedAt / 1000);
  } catch {
    // The template was removed or the disk is read-only. The loaded memory remains usable, so the clone can go on.
  }
}

export function removeTemplate(templatesDir: string, key: string): void {
  rmSync(join(templatesDir, key), { recursive: true, force: true });
}

/** Removes templates that a crashed agent had not finished, and folders without a manifest. */
export function removeUnfinished(templatesDir: string): void {
  for (const name of readdirSync(templatesDir)) {
    if (!existsSync(join(templatesDir, name, MANIFEST)) || name.startsWith(UNFINISHED))
      rmSync(join(templatesDir, name), { recursive: true, force: true });
  }
}

function pathsOf(dir: string): TemplatePaths {
  return { dir, memory: join(dir, PARTS.memory), state: join(dir, PARTS.state), disk: join(dir, PARTS.disk) };
}

function toTemplate(paths: TemplatePaths, { key, shape }: Manifest, memory: TemplateMemory): Template {
  return {
    key,
    shape,
    restore: {
      kind: 'restore',
      statePath: paths.state,
      memoryFd: memory.fd,
      templateKey: key,
    },
    diskPath: paths.disk,
    usedBytes: memory.usedBytes,
  };
}

function diskBytesOf(dir: string): number {
  return readdirSync(dir).reduce((sum, name) => sum + statSync(join(dir, name)).blocks * 512, 0);
}

async function hashOf(path: string): Promise<string> {
  return createHash('sha256')
    .update(await readFile(path))
    .digest('hex');
}

async function sync(path: string): Promise<void> {
  const file = await open(path, 'r');
  await file.sync().finally(() => file.close());
}
