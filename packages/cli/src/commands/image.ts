// `sandbar image`: makes images for machines, on the host where the command runs, and lists images.
import type { Command } from '@commander-js/extra-typings';
import { parseId, parseInteger } from '../arguments.ts';
import { addExamples } from '../examples.ts';
import { EXIT } from '../exit-codes.ts';
import { printJson, printNotice, toPrintable } from '../print.ts';
import { defineImageLs } from './image-ls.ts';

export function defineImage(command: Command): void {
  command.addHelpText(
    'after',
    `
build and import work on this host ($SANDBAR_CACHE). Machines keep the image that they were created from.`,
  );
  addExamples(command, 'sandbar image ls', 'sandbar image build python');
  defineImageLs(command.command('ls').description('lists what machines can be created from'));
  const build = command
    .command('build')
    .description('makes the image of a recipe: base, python, node, or a folder of your own in images/')
    .argument('<name>', 'the recipe', parseId)
    .option('--json', 'print the image as the API shows it')
    .action(async (name, { json }) => makeHere(json, async (service, log) => service.buildStack(name, log)));
  addExamples(build, 'sandbar image build python');
  const imports = command
    .command('import')
    .description('makes an image from an OCI image; machines take it as their stack')
    .argument('<name>', 'its name here', parseId)
    .argument('<reference>', 'the OCI image', parseId)
    .option('--insecure', 'accept a registry without a valid certificate; on this computer none is needed')
    .option('--max-gb <n>', 'allow unpacked layers of up to this size, GB (20)', parseInteger)
    .option('--max-files <n>', 'allow up to this many files (1000000)', parseInteger)
    .option('--json', 'print the image as the API shows it')
    .addHelpText(
      'after',
      `
A reference is one of
  docker://HOST/NAME:TAG  an image of a registry; a plain NAME:TAG is one of docker.io
  oci:DIR[:TAG]           an OCI layout
  docker-archive:FILE     what docker save and podman save write
Jobs get the image's environment, user, working directory and, with argv, entrypoint. Needs root and the packages skopeo
and umoci.`,
    )
    .action(async (name, reference, { insecure, maxGb, maxFiles, json }) => {
      const request = { name, reference, isInsecure: insecure === true, maxGb, maxFiles };
      return makeHere(json, async (service, log) => service.importStack(request, log));
    });
  addExamples(
    imports,
    'sandbar image import web docker://registry.example.org/web:1',
    'sandbar image import web docker-archive:web.tar --max-gb 40',
  );
}

type Service = typeof import('@sandbar/service/images.ts');
type Made = Awaited<ReturnType<Service['buildStack']>>;

/**
 * Makes an image on this host with code of the service, which is loaded only now. The messages of ImageError and
 * Problem are written for people, so they are printed without a stack.
 */
async function makeHere(
  isJson: boolean | undefined,
  make: (service: Service, log: (line: string) => void) => Promise<Made>,
): Promise<void> {
  try {
    const { image } = await make(await import('@sandbar/service/images.ts'), (line) =>
      console.error(toPrintable(line)),
    );
    const { stack, description, digest, architecture, min_rootfs_gb, created_at } = image;
    if (isJson)
      printJson({ stack, description, digest, architecture, min_rootfs_gb, default: image.default, created_at });
  } catch (error) {
    if (!(error instanceof Error && ['ImageError', 'Problem'].includes(error.name))) throw error;
    printNotice(error.message);
    process.exitCode = EXIT.error;
  }
}
