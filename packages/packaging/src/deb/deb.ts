// Builds the Debian package from a staged tree. It calls dpkg-deb, which every Debian and Ubuntu has, and the service
// supports only these systems. The package is so simple that a packaging tool would not help.
import { execFile } from 'node:child_process';
import { cp, mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { promisify } from 'node:util';
import { addDashboard, addGuestAgent, type Builder } from '../application/parts.ts';
import { normalise, stageApplication, versionOf } from '../application/stage.ts';
import { controlFile, debianVersion } from './control.ts';

const execute = promisify(execFile);

/** The workspaces with programs. The dashboard is missing here, because its built files are added instead. */
const WORKSPACES = ['cli', 'control-plane', 'host-agent', 'service'];
const UNITS = ['sandbar.service', 'sandbar-control-plane.service', 'sandbar-host-agent.service'];
const SETTINGS = ['sandbar.env', 'control-plane.env', 'host-agent.env'];
const SCRIPTS = ['postinst', 'prerm', 'postrm'];

export type DebOptions = {
  builder: Builder;
  /** The folder that gets the package. The tree is staged there too, and removed. */
  outDir: string;
  /** The time that all files get, in seconds since 1970. */
  epochSec: number;
  say: (line: string) => void;
};

/** Builds `sandbar_VERSION_amd64.deb` and resolves with its path. Throws Error. */
export async function buildDeb({ builder, outDir, epochSec, say }: DebOptions): Promise<string> {
  const { checkout } = builder;
  await mkdir(outDir, { recursive: true });
  const root = await mkdtemp(path.join(outDir, '.deb-'));
  try {
    say('copying the service and its packages');
    await stageFiles(builder, root, say);
    const version = await versionOf(checkout);
    await stageControl(checkout, root, version);
    await normalise(root, epochSec);

    say('compressing');
    const file = path.join(outDir, `sandbar_${debianVersion(version)}_amd64.deb`);
    // zstd packs it in seconds, xz in minutes. dpkg unpacks zstd since Debian 12 and Ubuntu 18.04.
    const args = ['--root-owner-group', '-Zzstd', '-z9', '--build', root, file];
    await execute('dpkg-deb', args, { env: { ...process.env, SOURCE_DATE_EPOCH: String(epochSec) } });
    return file;
  } finally {
    await rm(root, { recursive: true, force: true });
  }
}

async function stageFiles(builder: Builder, root: string, say: (line: string) => void): Promise<void> {
  const { checkout } = builder;
  const application = path.join(root, 'usr/lib/sandbar');
  await stageApplication({ checkout, target: application, workspaces: WORKSPACES });
  await Promise.all([addGuestAgent(builder, application, say), addDashboard(builder, application, say)]);
  await cp(path.join(checkout, 'images'), path.join(application, 'images'), { recursive: true });

  const copies = [
    ...UNITS.map((name) => [`systemd/${name}`, `usr/lib/systemd/system/${name}`]),
    ...SETTINGS.map((name) => [`systemd/${name}`, `etc/sandbar/${name}`]),
    ['deb/start.mjs', 'usr/lib/sandbar/scripts/start.mjs'],
    ['deb/sandbar', 'usr/bin/sandbar'],
    ['deb/copyright', 'usr/share/doc/sandbar/copyright'],
  ] as const;
  for (const [from = '', to = ''] of copies) await cp(path.join(checkout, 'deploy', from), path.join(root, to));
}

async function stageControl(checkout: string, root: string, version: string): Promise<void> {
  const { stdout } = await execute('du', ['-sk', '--apparent-size', root]);
  const control = path.join(root, 'DEBIAN');
  await mkdir(control);
  await writeFile(path.join(control, 'control'), controlFile(version, Number.parseInt(stdout, 10)));
  await writeFile(path.join(control, 'conffiles'), SETTINGS.map((name) => `/etc/sandbar/${name}\n`).join(''));
  for (const name of SCRIPTS) await cp(path.join(checkout, 'deploy/deb', name), path.join(control, name));
}
