// Code samples that upload a file into a folder.
import { quote } from '../../machines/samples.ts';
import type { Sample } from '../../ui/code-sample.tsx';
import { type EncodedPath, resolvePath, textOf } from './path.ts';
import { fileUrl } from './requests.ts';

export function uploadSamples(origin: string, machineId: string, folder: EncodedPath): Sample[] {
  const path = resolvePath(folder, 'notes.txt');
  const url = `${origin}${fileUrl(machineId, 'content', path)}`;
  return [
    {
      label: 'curl',
      code: `curl -T notes.txt ${quote(url)} \\\n  -H "Authorization: Bearer $SANDBAR_API_KEY"`,
    },
    { label: 'CLI', code: `sandbar cp notes.txt ${quote(`${machineId}:${textOf(path)}`)}` },
    {
      label: 'TypeScript',
      code: `import { readFile } from 'node:fs/promises';
import { Client } from '@sandbar/sdk';

const sandbar = new Client({ baseUrl: '${origin}' });
const files = sandbar.files('${machineId}');
await files.write(${JSON.stringify(textOf(path))}, await readFile('notes.txt'));`,
    },
    {
      label: 'Python',
      code: `import os, urllib.request

request = urllib.request.Request(
    "${url}",
    data=open("notes.txt", "rb").read(),
    method="PUT",
    headers={"Authorization": "Bearer " + os.environ["SANDBAR_API_KEY"]},
)
urllib.request.urlopen(request)`,
    },
  ];
}
