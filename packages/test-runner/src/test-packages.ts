// The distribution packages that the tests need in addition to those of the service.
import type { Progress } from '@sandbar/service/progress.ts';
import {
  installPackages,
  isPresent,
  missingPackages,
  type Requirement,
} from '@sandbar/service/setup/system-packages.ts';

/**
 * Needed by the tests of image imports. Without `skopeo` or `umoci`, an import fails with an error that names the
 * missing program.
 */
const FOR_IMPORTS: readonly Requirement[] = [
  { package: 'skopeo', shownBy: { program: 'skopeo' } },
  { package: 'umoci', shownBy: { program: 'umoci' } },
  { package: 'docker-registry', shownBy: { program: 'docker-registry' } },
  // The package `busybox` has the same program, but its version needs shared libraries that the test images lack.
  { package: 'busybox-static', shownBy: { file: '/var/lib/dpkg/info/busybox-static.list' } },
];

/** Needed by the tests in a browser. */
const FOR_BROWSERS: readonly Requirement[] = [{ package: 'chromium', shownBy: { file: '/usr/bin/chromium' } }];

/** Needed by the tests of the systemd units, the Debian package and the container image. */
const FOR_DEPLOYMENT: readonly Requirement[] = [
  { package: 'systemd', shownBy: { program: 'systemd-analyze' } },
  { package: 'skopeo', shownBy: { program: 'skopeo' } },
  { package: 'umoci', shownBy: { program: 'umoci' } },
];

/**
 * Installs the packages that these test files need and that are missing. Throws Problem when it is not allowed to
 * install packages.
 */
export async function ensureTestPackages(files: readonly string[], isRoot: boolean, progress: Progress): Promise<void> {
  // Tests that run as root also start a service without root, which needs a few packages of its own.
  const missing = missingPackages(false);
  if (files.some((file) => /\bimages\b/.test(file))) missing.push(...missingPackages(false, isPresent, FOR_IMPORTS));
  if (files.some((file) => file.startsWith('tests/browser/')))
    missing.push(...missingPackages(false, isPresent, FOR_BROWSERS));
  if (files.some((file) => file.startsWith('tests/deploy/')))
    missing.push(...missingPackages(false, isPresent, FOR_DEPLOYMENT));
  if (missing.length > 0) await installPackages([...new Set(missing)], isRoot, progress);
}
