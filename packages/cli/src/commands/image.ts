// `sandbar image`: makes what machines can be made from, on the host that the command runs on.
import { type Command, printJson, readArguments, readInteger } from '../command.ts';
import { UsageError } from '../usage-error.ts';
import { images } from './images.ts';

const HELP = `Usage: sandbar image build NAME [--json]
       sandbar image import NAME REF [--insecure] [--max-gb N] [--max-files N] [--json]
       sandbar image list [--json]

build makes the image of a recipe: base, python, node, or a folder of your own in images/.
import makes an image from another one, as NAME, which machines then take as their stack. REF is
  docker://HOST/NAME:TAG  of a registry; a plain NAME:TAG is of docker.io
  oci:DIR[:TAG]           an OCI layout
  docker-archive:FILE     what docker save and podman save write
Jobs have the image's environment, user, working directory and, with argv, entrypoint. One of unpacked layers over 20 GB
or a million files is refused unless --max-gb or --max-files allow it. --insecure takes a registry without a valid
certificate; on this machine none is needed. Needs root and the packages skopeo and umoci.

Both work on this host ($SANDBAR_CACHE), and machines that are there keep the image that they were made from.`;

type Action = (args: readonly string[]) => Promise<number>;

const build: Action = async (args) => {
  const { values, positionals } = readArguments(args, { json: { type: 'boolean', default: false } });
  const [name, ...more] = positionals;
  if (name === undefined || more.length > 0) throw new UsageError('which image? sandbar image build NAME');
  return runHere(values.json, async (service, log) => service.buildStack(name, log));
};

const importOne: Action = async (args) => {
  const { values, positionals } = readArguments(args, {
    insecure: { type: 'boolean', default: false },
    'max-gb': { type: 'string' },
    'max-files': { type: 'string' },
    json: { type: 'boolean', default: false },
  });
  const [name, reference, ...more] = positionals;
  if (name === undefined || reference === undefined || more.length > 0) {
    throw new UsageError('which image, as which name? sandbar image import NAME REF');
  }
  const request = {
    name,
    reference,
    isInsecure: values.insecure,
    maxGb: readInteger('--max-gb', values['max-gb']),
    maxFiles: readInteger('--max-files', values['max-files']),
  };
  return runHere(values.json, async (service, log) => service.importStack(request, log));
};

const ACTIONS: Record<string, Action> = { build, import: importOne, list: (args) => images.run(args) };

type Service = typeof import('@sandbar/service/images.ts');
type Made = Awaited<ReturnType<Service['buildStack']>>;

/** The part of the service that works on this host; only loaded by who needs it. Its errors are for the person here. */
async function runHere(
  isJson: boolean,
  make: (service: Service, log: (line: string) => void) => Promise<Made>,
): Promise<number> {
  try {
    const { image } = await make(await import('@sandbar/service/images.ts'), (line) => console.error(line));
    const { stack, description, digest, architecture, min_rootfs_gb, created_at } = image;
    if (isJson)
      printJson({ stack, description, digest, architecture, min_rootfs_gb, default: image.default, created_at });
    return 0;
  } catch (error) {
    if (!(error instanceof Error && ['ImageError', 'Problem'].includes(error.name))) throw error;
    console.error(`sandbar: ${error.message}`);
    return 1;
  }
}

async function runImage(args: readonly string[]): Promise<number> {
  const [name = '', ...rest] = args;
  const action = Object.hasOwn(ACTIONS, name) ? ACTIONS[name] : undefined;
  if (action === undefined) throw new UsageError('sandbar image takes one of build, import, list');
  return action(rest);
}

export const image: Command = {
  name: 'image',
  summary: 'builds an image from its recipe, or imports an OCI image: sandbar image import NAME REF',
  help: HELP,
  run: runImage,
};
