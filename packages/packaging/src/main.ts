// `npm run pack`: builds the published packages into build/npm/NAME and packs each into build/npm/NAME-VERSION.tgz.
import path from 'node:path';
import { packAll } from './pack.ts';

const checkout = path.resolve(import.meta.dirname, '../../..');
for (const { file, bytes } of await packAll(checkout, path.join(checkout, 'build', 'npm'))) {
  console.log(`${String(Math.ceil(bytes / 1024)).padStart(6)} KiB  ${path.relative(checkout, file)}`);
}
