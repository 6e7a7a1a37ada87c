// Translates command lines that were written for earlier versions of the CLI, so that scripts go on working. The help
// shows only the new names.

/** The present name of each former group or command. */
const GROUPS: Readonly<Record<string, string>> = {
  machines: 'machine',
  volumes: 'volume',
  snapshots: 'snapshot',
  images: 'image',
  quotas: 'quota',
};

/** The present name of each former subcommand. The present names are the same in all groups. */
const VERBS: Readonly<Record<string, string>> = {
  list: 'ls',
  show: 'get',
  destroy: 'rm',
  delete: 'rm',
  update: 'set',
};

/** The groups whose subcommands had former names. */
const RENAMED = new Set(['machine', 'volume', 'snapshot', 'image']);

/** The former commands that deleted data without asking. They get --yes, so that old scripts still run unattended. */
const UNASKED = new Set(['volumes delete', 'snapshots delete', 'snapshots restore', 'machines destroy']);

/** Returns the arguments with the present names. */
export function withPresentNames(args: readonly string[]): string[] {
  const [first, second, ...rest] = args;
  if (first === undefined) return [];
  const group = Object.hasOwn(GROUPS, first) ? (GROUPS[first] ?? first) : first;
  if (!RENAMED.has(group)) return [group, ...args.slice(1)];
  const isOld = group !== first;
  const isOption = second?.startsWith('-') === true && second !== '-h' && second !== '--help';
  // In earlier versions a group without a subcommand, such as `sandbar machines`, printed the list.
  if (isOld && (second === undefined || isOption)) return [group, 'ls', ...args.slice(1)];
  if (second === undefined) return [group];
  const verb = Object.hasOwn(VERBS, second) ? (VERBS[second] ?? second) : second;
  return [group, verb, ...(UNASKED.has(`${first} ${second}`) ? ['--yes'] : []), ...rest];
}
