/**
 * Runs mmdebstrap so that it cannot outlive the build or leave mounts behind. As root, mmdebstrap mounts the host's
 * /proc, /sys and /dev into the chroot. A killed build would leave these mounts, and the next build, which removes the
 * chroot, could delete the host's files through them.
 */
import { aptSources, buildMirrors } from './archive.ts';
import { runBuildCommand } from './build-command.ts';

export interface Bootstrap {
  recipe: { suite: string; components: readonly string[]; signingKeys: string };
  /** Options of mmdebstrap other than suite, target and mirror. */
  options: readonly string[];
  /** A shell command that runs last, with the path of the chroot as $1. */
  customizeHook: string;
  /**
   * Open files that the hook gets as descriptors 3, 4, and so on. The hook may run as another user, who cannot open
   * them by path.
   */
  descriptors: readonly number[];
  temporaryFolder: string;
  env: NodeJS.ProcessEnv;
  onLine?: (line: string) => void;
}

/** Makes a chroot, runs the hook in it and deletes the chroot. Throws ImageError. */
export async function bootstrap(request: Bootstrap): Promise<void> {
  const { recipe, env, onLine } = request;
  const [command = '', ...prefix] = process.getuid?.() === 0 ? AS_ROOT : AS_USER;
  await runBuildCommand({
    command,
    args: [
      ...prefix,
      ...['mmdebstrap', '--format=null', ...request.options, `--customize-hook=${request.customizeHook}`],
      // The chroot is deleted anyway, so mmdebstrap need not clean it up. The package sources come from standard input.
      ...['--skip=cleanup/apt', recipe.suite, '/dev/null', '-'],
    ],
    env: { ...env, TMPDIR: request.temporaryFolder },
    input: aptSources({ ...recipe, ...buildMirrors(env), signedBy: recipe.signingKeys }),
    descriptors: request.descriptors,
    ...(onLine === undefined ? {} : { onLine }),
  });
}

/**
 * Kills the command when this process ends, even by SIGKILL. Without root, processes that mmdebstrap started end at
 * their next line of output.
 */
const AS_USER = ['setpriv', '--pdeathsig', 'KILL'];

/** A mount namespace and a pid namespace of its own. Mounts and processes vanish with the namespace's first process. */
const AS_ROOT = [
  ...AS_USER,
  ...['unshare', '--mount', '--propagation', 'private', '--pid', '--fork', '--kill-child', '--mount-proc'],
];
