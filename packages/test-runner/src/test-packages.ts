// The distribution's packages that the tests use besides those of the service.
import type { Progress } from '@sandbar/service/progress.ts';
import {
  installPackages,
  isPresent,
  missingPackages,
  type Requirement,
} from '@sandbar/service/setup/system-packages.ts';

/** For the tests of image imports. An import names `skopeo` and `umoci` itself when they are missing. */
const FOR_IMPORTS: readonly Requirement[] = [
  { package: 'skopeo', shownBy: { program: 'skopeo' } },
  { package: 'umoci', shownBy: { program: 'umoci' } },
  { package: 'docker-registry', shownBy: { program: 'docker-registry' } },
  // The package `busybox` has the same program, but linked to libraries that the test images lack.
  { package: 'busybox-static', shownBy: { file: '/var/lib/dpkg/info/busybox-static.list' } },
];

/** Installs what is missing for these test files. Throws Problem when it may not. */
export async function ensureTestPackages(files: readonly string[], isRoot: boolean, progress: Progress): Promise<void> {
  // Tests that run as root also start a service without root, which needs a few packages of its own.
  const missing = missingPackages(false);
  if (files.some((file) => /\bimages\b/.test(file))) missing.push(...missingPackages(false, isPresent, FOR_IMPORTS));
  if (missing.length > 0) await installPackages(missing, isRoot, progress);
}
