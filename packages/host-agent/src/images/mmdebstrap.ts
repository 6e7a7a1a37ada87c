/**
 * Runs mmdebstrap so that it cannot outlive the build or leave anything mounted. As root it mounts /proc, /sys and
 * /dev of the host into the chroot; a build that was killed would leave those behind, for the next one to delete into.
 */
import { aptSources, buildMirrors } from './archive.ts';
import { runBuildCommand } from './build-command.ts';

export interface Bootstrap {
  recipe: { suite: string; components: readonly string[]; signingKeys: string };
  /** Options of mmdebstrap but for suite, target and mirror. */
  options: readonly string[];
  /** A shell command that runs last, with the chroot as $1. */
  customizeHook: string;
  /** Open files that the hook finds as 3, 4, ...: it may run as another user, who cannot reach them by path. */
  descriptors: readonly number[];
  temporaryFolder: string;
  env: NodeJS.ProcessEnv;
  onLine?: (line: string) => void;
}

/** Makes a chroot, runs the hook on it and throws the chroot away. Throws ImageError. */
export async function bootstrap(request: Bootstrap): Promise<void> {
  const { recipe, env, onLine } = request;
  const [command = '', ...prefix] = process.getuid?.() === 0 ? AS_ROOT : AS_USER;
  await runBuildCommand({
    command,
    args: [
      ...prefix,
      ...['mmdebstrap', '--format=null', ...request.options, `--customize-hook=${request.customizeHook}`],
      // The chroot is thrown away, so there is nothing to clean up in it; names of packages come from its sources.
      ...['--skip=cleanup/apt', recipe.suite, '/dev/null', '-'],
    ],
    env: { ...env, TMPDIR: request.temporaryFolder },
    input: aptSources({ ...recipe, ...buildMirrors(env), signedBy: recipe.signingKeys }),
    descriptors: request.descriptors,
    ...(onLine === undefined ? {} : { onLine }),
  });
}

/** Killed with the build, even by SIGKILL; what mmdebstrap started without root notices at its next line of output. */
const AS_USER = ['setpriv', '--pdeathsig', 'KILL'];

/** Mounts and processes of its own: both are gone when the first process of the namespaces is. */
const AS_ROOT = [
  ...AS_USER,
  ...['unshare', '--mount', '--propagation', 'private', '--pid', '--fork', '--kill-child', '--mount-proc'],
];
