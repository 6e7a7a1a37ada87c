/**
 * Turns an OCI layout into a tree of files: first the layout is inspected, then umoci unpacks it, both confined. The
 * tree contains names, setuid programs and devices that the image's author chose, so it is in a folder that no other
 * account can enter.
 */
import { realpathSync } from 'node:fs';
import { mkdir } from 'node:fs/promises';
import path from 'node:path';
import { ImageError } from '../image-error.ts';
import { writeCheckedLayout } from './checked-layout.ts';
import { runConfined, TREE_CAPABILITIES } from './confinement.ts';
import type { LayoutLimits, LayoutReport } from './inspect-layout.ts';
import { LAYOUT_TAG } from './skopeo.ts';

const INSPECTOR = path.join(import.meta.dirname, 'inspect-program.ts');

/** Inspects every byte of `<scratch>/layout`. Throws ImageError with the reason when the image must not be imported. */
export async function judgeLayout(scratch: string, limits: LayoutLimits): Promise<LayoutReport> {
  const node = realpathSync(process.execPath);
  const output = await runConfined({
    command: node,
    args: [
      '--disable-warning=ExperimentalWarning',
      `/program/${path.basename(INSPECTOR)}`,
      '/layout',
      JSON.stringify(limits),
    ],
    readOnly: [
      [node, node],
      [path.dirname(INSPECTOR), '/program'],
      [path.join(scratch, 'layout'), '/layout'],
    ],
    writable: [],
    capabilities: ['DAC_READ_SEARCH'],
    fileBytes: 0,
  });
  const report: LayoutReport | { refusal: string } = JSON.parse(output.toString());
  if ('refusal' in report) throw new ImageError(`The image is refused: ${report.refusal}`);
  if (report.os !== 'linux' || report.architecture !== 'amd64') {
    throw new ImageError(
      `The image is refused: it is for ${report.os}/${report.architecture}, and this host runs linux/amd64`,
    );
  }
  return report;
}

/**
 * Unpacks the layers of `<scratch>/layout` that `report` is about into `<scratch>/tree`. Throws ImageError when umoci
 * fails.
 */
export async function unpackLayout(scratch: string, report: LayoutReport, limits: LayoutLimits): Promise<void> {
  await writeCheckedLayout(scratch, report);
  const tree = path.join(scratch, 'tree');
  await mkdir(tree, { mode: 0o755 });
  await runConfined({
    command: 'umoci',
    args: ['raw', 'unpack', '--image', `/layout:${LAYOUT_TAG}`, '/tree'],
    readOnly: [[path.join(scratch, 'checked'), '/layout']],
    writable: [[tree, '/tree']],
    capabilities: TREE_CAPABILITIES,
    fileBytes: limits.bytes,
  });
}
