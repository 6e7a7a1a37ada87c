/**
 * Writes the layout that umoci unpacks: the layers as they were inspected, and an index, a manifest and a configuration
 * of our own that name nothing else. So umoci never reads a document that the image's author wrote.
 */
import { createHash } from 'node:crypto';
import { link, mkdir, writeFile } from 'node:fs/promises';
import path from 'node:path';
import type { LayoutReport } from './inspect-layout.ts';
import { LAYOUT_TAG } from './skopeo.ts';

const OCI = 'application/vnd.oci.image';

/** Writes `<scratch>/checked`, with the layers of `<scratch>/layout`. */
export async function writeCheckedLayout(scratch: string, report: LayoutReport): Promise<void> {
  const blobs = path.join(scratch, 'checked', 'blobs', 'sha256');
  await mkdir(blobs, { recursive: true });
  for (const digest of new Set(report.layers.map((layer) => layer.digest))) {
    // Link the blob instead of copying it: that costs no disk space, and if the image's author put a symlink where the
    // blob should be, link() does not follow it.
    await link(path.join(scratch, 'layout', 'blobs', 'sha256', hexOf(digest)), path.join(blobs, hexOf(digest)));
  }
  const writeBlob = async (kind: string, content: object) => {
    const bytes = Buffer.from(JSON.stringify(content));
    const digest = `sha256:${createHash('sha256').update(bytes).digest('hex')}`;
    await writeFile(path.join(blobs, hexOf(digest)), bytes);
    return { mediaType: `${OCI}.${kind}.v1+json`, digest, size: bytes.length };
  };
  const { os, architecture, layers } = report;
  const diffIds = layers.map(({ diffId }) => diffId);
  const config = await writeBlob('config', { os, architecture, rootfs: { type: 'layers', diff_ids: diffIds } });
  const manifest = await writeBlob('manifest', {
    schemaVersion: 2,
    config,
    layers: layers.map(({ digest, size, isGzip }) => ({
      mediaType: `${OCI}.layer.v1.tar${isGzip ? '+gzip' : ''}`,
      digest,
      size,
    })),
  });
  const annotations = { 'org.opencontainers.image.ref.name': LAYOUT_TAG };
  const index = { schemaVersion: 2, manifests: [{ ...manifest, annotations }] };
  await writeFile(path.join(scratch, 'checked', 'index.json'), JSON.stringify(index));
  await writeFile(path.join(scratch, 'checked', 'oci-layout'), '{"imageLayoutVersion":"1.0.0"}');
}

function hexOf(digest: string): string {
  return digest.slice('sha256:'.length);
}
