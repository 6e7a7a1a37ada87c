// How to start a program that listens in a machine, and how to reach its port without this page.
import type { Sample } from '../../ui/code-sample.tsx';

export function portSamples(origin: string, machineId: string): Sample[] {
  const machine = `${origin}/v1/machines/${machineId}`;
  return [
    {
      label: 'curl',
      code: `curl -X POST ${machine}/execs \\
  -H "Authorization: Bearer $SANDBAR_API_KEY" \\
  -H 'Content-Type: application/json' \\
  -d '{"command":"python3 -m http.server 8000"}'
curl -X POST ${machine}/ports/8000/token \\
  -H "Authorization: Bearer $SANDBAR_API_KEY"`,
    },
    {
      label: 'CLI',
      code: `sandbar exec ${machineId} -- python3 -m http.server 8000 &
sandbar ports ${machineId} 8000 --url`,
    },
    {
      label: 'TypeScript',
      code: `import { Client } from '@sandbar/sdk';

const sandbar = new Client({ baseUrl: '${origin}' });
await sandbar.execs.start('${machineId}', { command: 'python3 -m http.server 8000' });
console.log(await sandbar.ports('${machineId}').url(8000));`,
    },
  ];
}
