// `sandbar images`: what a machine can be made from.
import { type Command, connect, printJson, readArguments } from '../command.ts';
import { formatTable } from '../table.ts';

async function runImages(args: readonly string[]): Promise<number> {
  const { values } = readArguments(args, { json: { type: 'boolean', default: false } });
  const found = await connect().images.list();
  if (values.json) {
    printJson(found);
    return 0;
  }
  const rows = found.map((image) => [
    image.stack + (image.default ? ' (default)' : ''),
    image.architecture,
    `${image.min_rootfs_gb}`,
    image.digest.slice(0, 19),
    image.description,
  ]);
  console.log(formatTable(['STACK', 'ARCHITECTURE', 'MIN DISK GB', 'DIGEST', 'DESCRIPTION'], rows));
  return 0;
}

export const images: Command = {
  name: 'images',
  summary: 'lists what machines can be made from',
  help: 'Usage: sandbar images [--json]',
  run: runImages,
};
