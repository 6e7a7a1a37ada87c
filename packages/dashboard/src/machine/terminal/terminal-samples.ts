// Code samples that open a terminal of a machine.
import type { Sample } from '../../ui/code-sample.tsx';

export function terminalSamples(origin: string, machineId: string): Sample[] {
  return [
    { label: 'CLI', code: `sandbar shell ${machineId}` },
    {
      label: 'curl',
      code: `# The answer has a ticket. Open a WebSocket to its ws_path with ?ticket=… within 30 seconds.
curl -X POST ${origin}/v1/machines/${machineId}/terminal-session \\
  -H "Authorization: Bearer $SANDBAR_API_KEY" \\
  -H 'Content-Type: application/json' \\
  -d '{"cols":120,"rows":30}'`,
    },
    {
      label: 'TypeScript',
      code: `import { Client } from '@sandbar/sdk';

const sandbar = new Client({ baseUrl: '${origin}' });
const terminal = await sandbar.terminals.open('${machineId}', { cols: 120, rows: 30 });
await terminal.write('uname -a\\n');
for await (const bytes of terminal) process.stdout.write(bytes);`,
    },
  ];
}
