// `sandbar images`: lists the images that a machine can be created from.
import type { Command } from '@commander-js/extra-typings';
import { connect } from '../connect.ts';
import { printJson, printTable } from '../print.ts';

export function defineImages(command: Command): void {
  command.option('--json', 'print the answer of the API').action(async ({ json }) => {
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
    printTable(['STACK', 'ARCHITECTURE', 'MIN DISK GB', 'DIGEST', 'DESCRIPTION'], rows);
  });
}
