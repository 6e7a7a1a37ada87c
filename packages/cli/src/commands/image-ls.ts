// `sandbar image ls`: lists the images that a machine can be created from.
import type { Command } from '@commander-js/extra-typings';
import { connect } from '../connect.ts';
import { addExamples } from '../examples.ts';
import { printJson, printRows } from '../print.ts';

export function defineImageLs(command: Command): void {
  const defined = command.option('--json', 'print the answer of the API').action(async ({ json }) => {
    const images = await connect().images.list();
    if (json) {
      printJson({ images });
      return;
    }
    const rows = images.map((image) => [
      image.stack + (image.default ? ' (default)' : ''),
      image.architecture,
      `${image.min_rootfs_gb}`,
      image.digest.slice(0, 19),
      image.description,
    ]);
    printRows(['STACK', 'ARCHITECTURE', 'MIN DISK GB', 'DIGEST', 'DESCRIPTION'], rows, 'No images.');
  });
  addExamples(defined, 'sandbar image ls');
}
