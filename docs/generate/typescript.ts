// Corrects the pages that TypeDoc writes about the objects of the API. Their types are computed from schemas, so
// TypeDoc shows expressions of the schema library. The API reference describes these objects in words, so link to it.
import { globSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';

/** Replaces the pages of types and schemas that are objects of the API with a link to the object. */
export function linkRecords(folder: string): void {
  const objects = new Set(
    [...readFileSync(path.join(folder, '../api/objects.md'), 'utf8').matchAll(/^## (\w+)$/gm)].map((match) => match[1]),
  );
  for (const page of globSync('{type-aliases,variables}/*.md', { cwd: folder })) {
    const name = path.basename(page, '.md');
    const file = path.join(folder, page);
    if (!objects.has(name) || !/Static&lt;|`TObject`/.test(readFileSync(file, 'utf8'))) continue;
    const link = `[${name}](../../api/objects.md#${name.toLowerCase()})`;
    writeFileSync(file, `# ${name}\n\nThe object ${link} of the API.\n`);
  }
}
