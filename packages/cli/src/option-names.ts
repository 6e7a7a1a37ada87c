// Which option of the CLI sets which field of the API. The service names fields in its error messages, and the user
// knows only the options.

/** Options by field. */
const OPTIONS: Readonly<Record<string, string>> = {
  name: '--name',
  vcpus: '--vcpus',
  memory_mb: '--memory',
  rootfs_size_gb: '--rootfs',
  stack: '--stack',
  metadata: '--metadata',
  env: '--env',
  expires_in_sec: '--expires (in seconds)',
  on_expiry: '--on-expiry',
  snapshot_id: '--snapshot',
  root_volume_id: '--root-volume',
  volumes: '--volume',
  argv: 'the command',
  command: 'the command',
  cwd: '--cwd',
  user: '--user',
  timeout_sec: '--timeout',
  merge_output: '--merge-output',
  stdin: 'standard input',
  size_gb: '--size',
  mount_path: '--path',
  machine_id: 'MACHINE',
  preserve_storage: '--keep-disk',
  delete_snapshots: '--delete-snapshots',
  memory: '--memory',
  scope: '--scope',
  expires_at: '--expires',
  group_by: '--by',
  category: '--category',
  kind: '--kind',
  q: '--search',
  from: '--from',
  to: '--to',
  depth: '--depth',
  mode: '--mode',
};

/** Commands in which another option sets the field. */
const EXCEPTIONS: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  'sandbar ports': { expires_in_sec: '--expires-in' },
};

/** The error codes whose details name fields. For other codes, `memory_mb` may be the name of a full quota. */
const NAMING_FIELDS = new Set(['validation_error', 'conflict']);

/** Replaces the fields that an error's `detail` names by the options of the command `called`. */
export function inWordsOfCli(code: string, detail: string, called: string): string {
  if (!NAMING_FIELDS.has(code)) return detail;
  const options = { ...OPTIONS, ...EXCEPTIONS[called] };
  const optionFor = (field: string) => (Object.hasOwn(options, field) ? options[field] : undefined);
  return (
    detail
      // A name without an underscore, such as `name`, may be an ordinary word. It is a field only at the beginning.
      .replace(/^(\w+)(?:\.(\S+))?(?= (?:must|is required)\b)/, (text, field: string, part: string | undefined) => {
        const option = optionFor(field);
        if (option === undefined) return text;
        return part === undefined || /^\d+$/.test(part) ? option : `${option} ${part}`;
      })
      .replace(/\b(before|after) (from|to)\b/g, (_, word: string, field: string) => `${word} --${field}`)
      // Names with an underscore are fields anywhere in the text. A value as in `delete_snapshots=true` is dropped.
      .replace(/\b([a-z]+(?:_[a-z]+)+)(?:=true)?\b/g, (text, field: string) => optionFor(field) ?? text)
  );
}
