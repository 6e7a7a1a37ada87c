// Builds the container image of the control plane as an OCI archive, without a daemon. umoci writes the layers and the
// metadata. The service needs umoci anyway, to import images.
import { execFile } from 'node:child_process';
import { chmod, lchown, mkdir, mkdtemp, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { promisify } from 'node:util';
import { COLLECTABLE, MEMORY_SETTINGS, nodeArgs, SMALL_HEAP } from '@sandbar/service/supervise/definitions.ts';
import { addDashboard, type Builder } from '../application/parts.ts';
import { copyModule, normalise, stageApplication, versionOf } from '../application/stage.ts';
import { buildPackage } from '../build.ts';
import { PUBLISHED } from '../packages.ts';
import { addBase, IMAGE_UID } from './base.ts';

const execute = promisify(execFile);

/** The folder of the application in the image. */
const APPLICATION = '/usr/lib/sandbar';
const NODE = `${APPLICATION}/node_modules/node/bin/node`;
const HOME = '/var/lib/sandbar';

const ENVIRONMENT = {
  PATH: '/usr/bin',
  NODE_COMPILE_CACHE: `${HOME}/compile-cache`,
  SANDBAR_HOME: HOME,
  SANDBAR_DASHBOARD_DIR: `${APPLICATION}/dashboard`,
  SANDBAR_LISTEN: '0.0.0.0:7070',
  SANDBAR_METRICS_LISTEN: '0.0.0.0:7071',
  // Run no host agent here, because the hosts are other computers.
  SANDBAR_LOCAL_HOST: '0',
  ...MEMORY_SETTINGS,
};

export type ImageOptions = {
  builder: Builder;
  /** The folder that gets the archive. The layers are staged there too, and removed. */
  outDir: string;
  /** The time that all files and the image get, in seconds since 1970. */
  epochSec: number;
  say: (line: string) => void;
};

/** Builds `sandbar-control-plane.oci.tar` and resolves with its path. Only root can build it. Throws Error. */
export async function buildImage({ builder, outDir, epochSec, say }: ImageOptions): Promise<string> {
  if (!builder.isRoot) throw new Error('The image has files of several users, so only root can build it');
  await mkdir(outDir, { recursive: true });
  const work = await mkdtemp(path.join(outDir, '.image-'));
  try {
    const [base, application] = [path.join(work, 'base'), path.join(work, 'application')];
    for (const folder of [base, application]) await mkdir(folder);
    say('libraries');
    await addBase(builder.cacheDir, base);
    say('control plane, dashboard and command line');
    await stageControlPlane(builder, application, say);
    for (const folder of [base, application]) await normalise(folder, epochSec);
    await giveFolders(base);

    say('layers');
    const version = await versionOf(builder.checkout);
    const layout = path.join(work, 'layout');
    await writeLayout({ layout, layers: [base, application], version, created: new Date(epochSec * 1000) });
    const file = path.join(outDir, 'sandbar-control-plane.oci.tar');
    const times = [`--mtime=@${epochSec}`, '--sort=name', '--owner=0', '--group=0', '--numeric-owner'];
    await execute('tar', [...times, '-cf', file, '-C', layout, '.']);
    return file;
  } finally {
    await rm(work, { recursive: true, force: true });
  }
}

async function stageControlPlane(builder: Builder, root: string, say: (line: string) => void): Promise<void> {
  const { checkout } = builder;
  const target = path.join(root, APPLICATION);
  await stageApplication({ checkout, target, workspaces: ['control-plane'] });
  await copyModule(path.join(checkout, 'node_modules/node'), path.join(target, 'node_modules/node'));
  await addDashboard(builder, target, say);
  await addCommandLine(checkout, root);
}

/** Adds the published CLI for operators who call it in the container: one file, without the code of the service. */
async function addCommandLine(checkout: string, root: string): Promise<void> {
  const cli = PUBLISHED.find(({ folder }) => folder === 'cli');
  if (cli === undefined) throw new Error('The CLI is not published any more');
  const target = path.join(root, APPLICATION, 'cli');
  await buildPackage(cli, checkout, target);
  const program = path.join(target, 'dist', 'sandbar.js');
  // Replace the first line of the published program. It calls `env`, which the image lacks.
  const code = (await readFile(program, 'utf8')).replace(/^#!.*\n/, `#!${NODE}\n`);
  await writeFile(program, code);
  await chmod(program, 0o755);
  await mkdir(path.join(root, 'usr/bin'), { recursive: true });
  await symlink(`${APPLICATION}/cli/dist/sandbar.js`, path.join(root, 'usr/bin/sandbar'));
  await symlink(NODE, path.join(root, 'usr/bin/node'));
}

/** Gives the control plane its home and /tmp, the only folders to which it writes. */
async function giveFolders(base: string): Promise<void> {
  const home = path.join(base, HOME);
  await lchown(home, IMAGE_UID, IMAGE_UID);
  await chmod(home, 0o700);
  await chmod(path.join(base, 'tmp'), 0o1777);
}

type Layout = { layout: string; layers: readonly string[]; version: string; created: Date };

async function writeLayout({ layout, layers, version, created }: Layout): Promise<void> {
  const image = `${layout}:${version}`;
  const date = created.toISOString();
  await execute('umoci', ['init', '--layout', layout]);
  await execute('umoci', ['new', '--image', image]);
  const history = [`--history.created=${date}`, '--history.author=sandbar', '--history.created_by=pack:image'];
  for (const layer of layers) await execute('umoci', ['insert', '--image', image, ...history, layer, '/']);

  const labels = {
    'org.opencontainers.image.title': 'sandbar-control-plane',
    'org.opencontainers.image.description': 'The control plane of Sandbar: API, dashboard and reconciler',
    'org.opencontainers.image.version': version,
    'org.opencontainers.image.created': date,
    'org.opencontainers.image.licenses': 'Apache-2.0',
  };
  const entrypoint = [NODE, ...nodeArgs(APPLICATION, 'control-plane', SMALL_HEAP, COLLECTABLE)];
  const values = [
    ...Object.entries(ENVIRONMENT).map(([name, value]) => ['env', `${name}=${value}`]),
    ...Object.entries(labels).map(([name, value]) => ['label', `${name}=${value}`]),
    ...entrypoint.map((word) => ['entrypoint', word]),
    ...['7070/tcp', '7071/tcp'].map((port) => ['exposedports', port]),
    ['user', `${IMAGE_UID}:${IMAGE_UID}`],
    ['workingdir', '/'],
    ['stopsignal', 'SIGTERM'],
  ].map(([name, value]) => `--config.${name}=${value}`);
  const platform = ['--os=linux', '--architecture=amd64', `--created=${date}`, '--no-history'];
  await execute('umoci', ['config', '--image', image, ...platform, ...values]);
  await execute('umoci', ['gc', '--layout', layout]);
}
