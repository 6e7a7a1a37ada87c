// Code samples that run a command in a machine.
import type { Sample } from '../../ui/code-sample.tsx';

export const execSamples = (origin: string, machineId: string): Sample[] => [
  {
    label: 'curl',
    code: `curl -X POST '${origin}/v1/machines/${machineId}/execs?wait_ms=10000' \\
  -H "Authorization: Bearer $SANDBAR_API_KEY" \\
  -H 'Content-Type: application/json' \\
  -d '{"command": "uname -a"}'`,
  },
  { label: 'CLI', code: `sandbar exec ${machineId} -- uname -a` },
  {
    label: 'TypeScript',
    code: `import { Client } from '@sandbar/sdk';

const sandbar = new Client({ baseUrl: '${origin}' });
const { job, stdout } = await sandbar.execs.run('${machineId}', { command: 'uname -a' });
console.log(job.exit_code, new TextDecoder().decode(stdout));`,
  },
  {
    label: 'Python',
    code: `import json, os, urllib.request

request = urllib.request.Request(
    '${origin}/v1/machines/${machineId}/execs?wait_ms=10000',
    json.dumps({'command': 'uname -a'}).encode(),
    {
        'Authorization': 'Bearer ' + os.environ['SANDBAR_API_KEY'],
        'Content-Type': 'application/json',
    },
)
print(json.load(urllib.request.urlopen(request)))`,
  },
];
