// Brings the layers of a disk from another host into this host's store. Layers never change and have the same id on
// every host, so one that is here already is not written again.
import { closeSync, existsSync, fsyncSync, openSync, renameSync, rmSync } from 'node:fs';
import { dirname, join } from 'node:path';
import type { LayerStore } from '../storage/layers.ts';
import type { MovedLayer } from './head.ts';
import type { WantedFile } from './received-files.ts';

const partialOf = (dir: string, { id }: MovedLayer) => join(dir, `${id}.layer`);

/** Returns where the layers are written at first. */
export function wantedLayers(dir: string, layers: readonly MovedLayer[], store: LayerStore): WantedFile[] {
  return layers.map((layer) => ({ path: store.has(layer.id) ? undefined : partialOf(dir, layer), bytes: layer.bytes }));
}

/**
 * Moves the written layers into the store and makes that durable, then calls `name`, which must make a record that
 * names them. All of this is synchronous, so the garbage collection never sees a layer that nothing names. Throws an
 * Error when a layer that was here before has gone meanwhile; the copy must be sent again.
 */
export function addLayers(dir: string, layers: readonly MovedLayer[], store: LayerStore, name: () => void): void {
  for (const layer of layers) {
    const partial = partialOf(dir, layer);
    if (!store.has(layer.id)) store.add(layer.id, partial);
    else if (existsSync(partial)) rmSync(partial);
  }
  if (layers[0]) syncNow(dirname(store.pathOf(layers[0].id)));
  name();
}

/** Renames a file and makes that durable, with everything that was renamed before. */
export function renameDurably(from: string, to: string): void {
  renameSync(from, to);
  syncNow(dirname(to));
}

function syncNow(path: string): void {
  const file = openSync(path, 'r');
  try {
    fsyncSync(file);
  } finally {
    closeSync(file);
  }
}
