// Code samples of a request, with curl, the CLI, TypeScript and Python.
import type { Sample } from '../ui/code-sample.tsx';
import type { CreateBody } from './create-body.ts';

type Call = {
  origin: string;
  method: 'GET' | 'POST';
  path: string;
  body?: Record<string, unknown>;
  /** The same as a command of the CLI. */
  cli: string;
  /** The statement of TypeScript; `sandbar` is the client. */
  typescript: string;
};

/** `body`: the fields that differ from the defaults. */
export function createSamples(origin: string, body: CreateBody): Sample[] {
  const isEmpty = Object.keys(body).length === 0;
  return samplesOf({
    origin,
    method: 'POST',
    path: '/v1/machines',
    body,
    cli: ['sandbar machine create', ...optionsOf(body)].join(' \\\n  '),
    typescript: `const machine = await sandbar.machines.create(${isEmpty ? '' : JSON.stringify(body, null, 2)});`,
  });
}

export function samplesOf({ origin, method, path, body, cli, typescript }: Call): Sample[] {
  const json =
    body === undefined ? '' : ` \\\n  -H 'Content-Type: application/json' \\\n  -d ${quote(JSON.stringify(body))}`;
  return [
    {
      label: 'curl',
      code: `curl ${method === 'GET' ? '' : `-X ${method} `}${origin}${path} \\
  -H "Authorization: Bearer $SANDBAR_API_KEY"${json}`,
    },
    { label: 'CLI', code: cli },
    {
      label: 'TypeScript',
      code: `import { Client } from '@sandbar/sdk';

const sandbar = new Client({ baseUrl: '${origin}' });
${typescript}`,
    },
    { label: 'Python', code: pythonOf({ origin, method, path, ...(body ? { body } : {}) }) },
  ];
}

/** Uses only Python's standard library. JSON of objects, numbers and strings is also a Python literal. */
function pythonOf({ origin, method, path, body }: Pick<Call, 'origin' | 'method' | 'path' | 'body'>): string {
  const data = body === undefined ? '' : `\n    data=json.dumps(${JSON.stringify(body)}).encode(),`;
  const type = body === undefined ? '' : ", 'Content-Type': 'application/json'";
  return `import json, os, urllib.request

request = urllib.request.Request(
    '${origin}${path}',
    method='${method}',${data}
    headers={'Authorization': 'Bearer ' + os.environ['SANDBAR_API_KEY']${type}},
)
print(json.load(urllib.request.urlopen(request)))`;
}

/** The options of `sandbar machine create`, in the order of its help. */
function optionsOf(body: CreateBody): string[] {
  const { name, metadata = {}, env = {}, expires_in_sec: expires, on_expiry: onExpiry } = body;
  const pairs = (option: string, values: object) =>
    Object.entries(values).map(([key, value]) => [option, `${key}=${value}`] as const);
  const options: (readonly [string, string | number | null | undefined])[] = [
    ['--vcpus', body.vcpus],
    ['--memory', body.memory_mb],
    ['--rootfs', body.rootfs_size_gb],
    ['--stack', body.stack],
    ['--snapshot', body.snapshot_id],
    ['--root-volume', body.root_volume_id],
    ['--name', name],
    ...pairs('--metadata', metadata),
    ['--expires', typeof expires === 'number' ? `${expires}s` : undefined],
    ['--on-expiry', onExpiry],
    ...pairs('--env', env),
  ];
  return options.flatMap(([option, value]) => (value == null ? [] : [`${option} ${word(String(value))}`]));
}

/** Quotes a text as one word of a POSIX shell. Plain words stay as they are. */
export const word = (text: string): string => (/^[\w.:/=@-]+$/.test(text) ? text : quote(text));

/** Quotes a text as one word of a POSIX shell. */
export const quote = (text: string): string => `'${text.replaceAll("'", "'\\''")}'`;
