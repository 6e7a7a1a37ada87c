/**
 * Writes Debian package sources for apt. The sources contain the recipe's signing keys, because a host with Ubuntu or
 * an older Debian lacks the keys of a newer suite.
 */
import { DEFAULT_MIRROR } from './recipe.ts';

export interface Archive {
  suite: string;
  components: readonly string[];
  mirror: string;
  securityMirror: string;
  /** ASCII-armoured public keys, or the path of a keyring file. */
  signedBy: string;
}

/** Returns the mirrors for downloads during a build: `SANDBAR_DEBIAN_MIRROR`, or Debian's own network of mirrors. */
export function buildMirrors(env: NodeJS.ProcessEnv): { mirror: string; securityMirror: string } {
  const mirror = (env.SANDBAR_DEBIAN_MIRROR ?? DEFAULT_MIRROR).replace(/\/+$/, '');
  return { mirror, securityMirror: env.SANDBAR_DEBIAN_SECURITY_MIRROR ?? securityMirrorOf(mirror) };
}

/**
 * Returns the mirror of the security updates. Mirrors keep these in a folder next to the release: `debian-security`
 * next to `debian`.
 */
export function securityMirrorOf(mirror: string): string {
  return mirror.endsWith('/debian') ? `${mirror}-security` : 'http://deb.debian.org/debian-security';
}

/** Returns the deb822 sources of a suite, its updates and its security updates. */
export function aptSources(archive: Archive): string {
  const { suite, mirror, securityMirror } = archive;
  return [
    sourceStanza(archive, mirror, [suite, `${suite}-updates`]),
    sourceStanza(archive, securityMirror, [`${suite}-security`]),
  ].join('\n');
}

function sourceStanza(archive: Archive, uri: string, suites: readonly string[]): string {
  return [
    'Types: deb',
    `URIs: ${uri}`,
    `Suites: ${suites.join(' ')}`,
    `Components: ${archive.components.join(' ')}`,
    `Signed-By:${archive.signedBy.startsWith('/') ? ` ${archive.signedBy}` : foldKeys(archive.signedBy)}`,
    '',
  ].join('\n');
}

/** In deb822, continuation lines start with a space, and an empty line is written as a dot. */
function foldKeys(keys: string): string {
  const lines = keys.trim().split('\n');
  return lines.map((line) => `\n ${line.trim() === '' ? '.' : line}`).join('');
}
