// `npm run pack:deb`: builds build/sandbar_VERSION_amd64.deb.
import path from 'node:path';
import { defaultCache } from '@sandbar/contract/home.ts';
import { sourceEpoch } from '../application/source-epoch.ts';
import { buildDeb } from './deb.ts';

const checkout = path.resolve(import.meta.dirname, '../../../..');
const isRoot = process.getuid?.() === 0;
const file = await buildDeb({
  builder: { checkout, cacheDir: defaultCache(process.env, isRoot), isRoot },
  outDir: path.join(checkout, 'build'),
  epochSec: await sourceEpoch(checkout),
  say: (line) => console.log(`  … ${line}`),
});
console.log(path.relative(checkout, file));
