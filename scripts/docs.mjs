// `npm run docs`: installs the packages of the documents' site, which nothing else needs, then builds the site and
// checks its links. `npm run docs:dev` serves it instead, and rebuilds a page when its file changes.
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { checkout, ensureNodeModules, fail } from './node-modules.mjs';
import { runServiceNode } from './run-service-node.mjs';

const docs = join(checkout, 'docs');
const stampFile = join(docs, 'node_modules', '.sandbar-stamp');

ensureNodeModules();
ensureDocsModules();
runServiceNode('docs/generate/main.ts', process.argv.slice(2));

function ensureDocsModules() {
  const stamp = createHash('sha256')
    .update(readFileSync(join(docs, 'package-lock.json')))
    .digest('hex');
  if (existsSync(stampFile) && readFileSync(stampFile, 'utf8') === stamp) return;
  console.log('  … packages of the site: npm install');
  const { npm_execpath: npm } = process.env;
  const args = ['install', '--no-save', '--workspaces=false', '--no-audit', '--no-fund', '--loglevel=error'];
  const [command, ...all] = npm?.endsWith('.js') ? [process.execPath, npm, ...args] : ['npm', ...args];
  const { status, error } = spawnSync(command, all, { cwd: docs, stdio: ['ignore', 'inherit', 'inherit'] });
  if (error || status !== 0) fail('npm did not install the packages of the site; what it said is above.');
  writeFileSync(stampFile, stamp);
}
