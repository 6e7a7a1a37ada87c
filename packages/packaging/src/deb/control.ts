// The control file of the Debian package.
import { missingPackages } from '@sandbar/service/setup/system-packages.ts';

/**
 * The libraries that Node and PostgreSQL need, which were built for old distributions, and the packages whose programs
 * the maintainer scripts call.
 */
const LIBRARIES_AND_SCRIPTS = ['adduser', 'libc6 (>= 2.28)', 'libgcc-s1', 'libstdc++6 (>= 9)', 'passwd'];
/** Only `sandbar image import` needs them. */
const FOR_IMPORTS = ['skopeo', 'umoci'];

/**
 * The packages that the service needs. They include all packages that the service's set-up would install as root, so
 * after the installation the set-up has nothing to install.
 */
export function dependencies(): string[] {
  const nothingIsThere = () => false;
  return [...new Set([...LIBRARIES_AND_SCRIPTS, ...missingPackages(true, nothingIsThere)])].sort();
}

/** `version`: as in package.json. `installedKb`: the size of the installed files on the disk, in KiB. */
export function controlFile(version: string, installedKb: number): string {
  const fields = {
    Package: 'sandbar',
    Version: debianVersion(version),
    Architecture: 'amd64',
    Maintainer: 'The authors of Sandbar <sandbar@localhost>',
    'Installed-Size': String(installedKb),
    Depends: dependencies().join(', '),
    Recommends: FOR_IMPORTS.join(', '),
    Section: 'admin',
    Priority: 'optional',
    Description: [
      'sandbox machine service: real microVMs through a REST API',
      'Sandbar runs short-lived or lasting machines, each a microVM with a kernel of its own.',
      'This package has the control plane, the host agent, PostgreSQL, the dashboard and the',
      'command line, with systemd units. No unit is enabled: sandbar.service runs all of it on one',
      'computer, sandbar-control-plane.service and sandbar-host-agent.service one part each.',
    ].join('\n '),
  };
  return Object.entries(fields)
    .map(([name, value]) => `${name}: ${value}\n`)
    .join('');
}

/** In Debian a pre-release sorts before its release only after a tilde: 1.0.0-rc.1 becomes 1.0.0~rc.1. */
export function debianVersion(version: string): string {
  return version.replace('-', '~');
}
