// Runs `npm test` once the node modules are installed. It runs the static checks and then every test file, with one
// PostgreSQL for all of them and one service for the end-to-end tests. Arguments (or SANDBAR_TEST_FILTER) select test
// files by path. Then the static checks are skipped.
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { readConfig, type ServiceConfig } from '@sandbar/service/config.ts';
import { messageOf, Problem } from '@sandbar/service/problem.ts';
import { formatDuration, lineProgress } from '@sandbar/service/progress.ts';
import { startService } from '@sandbar/service/service.ts';
import type { UserIds } from '@sandbar/service/setup/service-user.ts';
import { setUp } from '@sandbar/service/setup/setup.ts';
import { onStopSignals } from '@sandbar/service/stop-signals.ts';
import { freePorts } from '../../control-plane/tests/support/free-ports.ts';
import { waitForDoctor } from './doctor.ts';
import { describeLeaks, listTaps } from './leaks.ts';
import { runNodeTests } from './node-tests.ts';
import { ensurePythonEnvironment, type PythonEnvironment } from './python-environment.ts';
import { runStaticChecks } from './static-checks.ts';
import { groupTestFiles, selectTestFiles } from './test-files.ts';
import { ensureTestPackages } from './test-packages.ts';
import { startTestPostgres } from './test-postgres.ts';

/** The tool that the conformance tests use. */
const SCHEMATHESIS = { name: 'schemathesis', requirements: 'tests/conformance/requirements.txt' };
/** The packages that the checks and tests of the Python SDK use. */
const PYTHON_SDK = { name: 'python-sdk', requirements: 'sdk-python/requirements-dev.txt' };
/** The package with the schemas that the tests of the Helm chart use. */
const DEPLOYMENT = { name: 'deploy-tests', requirements: 'tests/deploy/requirements.txt' };
/** How many of the slowest test files are listed at the end. */
const SLOWEST = 25;
/**
 * Environment variables that tests must not inherit. Otherwise a unit test could reach a service of the person who runs
 * the tests.
 */
const NOT_INHERITED = ['HOME', 'BASE_URL', 'API_KEY', 'LISTEN', 'DATABASE_URL'].map((name) => `SANDBAR_${name}`);

const { stop } = onStopSignals();
const progress = lineProgress((text) => process.stdout.write(text), process.stdout.isTTY);
/** One line for each failure. The run has failed when there is at least one. */
const failures: string[] = [];

/** What the groups of test files report at the end of the run. */
type Report = { summaries: string[]; details: string[]; durations: Map<string, number> };

async function main(): Promise<void> {
  const config = readConfig(
    {
      ...process.env,
      SANDBAR_HOME: await mkdtemp(path.join(tmpdir(), 'sandbar-test-')),
      // The end-to-end tests use several accounts. Without KVM, the service allows that only with this setting.
      SANDBAR_ALLOW_EMULATED_TENANTS: '1',
      // The tests must pass on a computer whose disk is small or nearly full.
      SANDBAR_DISK_OVERCOMMIT: '1000',
      SANDBAR_DISK_RESERVE_MB: '1024',
    },
    process.getuid?.() ?? -1,
  );
  try {
    await test(config);
  } finally {
    if (failures.length === 0) await rm(config.home, { recursive: true, force: true });
    else console.log(`The data directory of the tests, with its logs, is kept in ${config.home}`);
  }
}

async function test(config: ServiceConfig): Promise<void> {
  const filters = [...process.argv.slice(2), ...(process.env.SANDBAR_TEST_FILTER ?? '').split(/\s+/)].filter(Boolean);
  const files = selectTestFiles(config.checkout, filters);
  if (files.length === 0) throw new Problem(`No test file matches ${filters.join(' ')}`);

  progress.say('Setting up');
  const { user, goPath } = await setUp(config, progress);
  if (goPath === undefined) throw new Problem('The tests need a checkout, and this is an installed package');
  await ensureTestPackages(files, config.isRoot, progress);
  const env: NodeJS.ProcessEnv = { ...process.env };
  for (const name of NOT_INHERITED) delete env[name];
  const ensurePython = (environment: PythonEnvironment) =>
    progress.step(environment.name, (say) => ensurePythonEnvironment(config, environment, progress, say));
  if (files.some((file) => file.startsWith('tests/conformance/'))) {
    env.SANDBAR_TEST_SCHEMATHESIS = await ensurePython(SCHEMATHESIS);
  }
  if (files.some((file) => /^tests\/deploy\/.*\.long\./.test(file))) {
    env.SANDBAR_TEST_DEPLOY_PYTHON = await ensurePython(DEPLOYMENT);
  }
  const hasChecks = filters.length === 0;
  env.SANDBAR_TEST_GO = goPath;
  if (hasChecks) {
    const python = ensurePython(PYTHON_SDK);
    const tools = { go: { path: goPath, cacheDir: config.cacheDir }, python };
    failures.push(...(await runStaticChecks(config.checkout, tools, progress, stop)));
    env.SANDBAR_TEST_PYTHON = await python;
  } else if (files.some((file) => file.includes('sdk-python'))) {
    env.SANDBAR_TEST_PYTHON = await ensurePython(PYTHON_SDK);
  }

  const taps = listTaps();
  const report: Report = { summaries: [], details: [], durations: new Map() };
  const cleanUps: (() => Promise<unknown>)[] = [];
  try {
    if (files.some((file) => file.startsWith('packages/'))) await addPostgres(config, user, env, cleanUps);
    const hasService = files.some((file) => file.startsWith('tests/'));
    if (hasService) await addService(config, user, env, cleanUps);
    await runGroups(config.checkout, files, env, report);
    if (hasService) {
      const asking = progress.step('sandbar doctor', () => waitForDoctor(config.checkout, config.home));
      await asking.catch((error: unknown) => failures.push(messageOf(error)));
    }
  } finally {
    for (const cleanUp of cleanUps.toReversed()) await cleanUp();
  }
  const leaks = describeLeaks(config.home, taps);
  if (leaks.length > 0) failures.push(`left behind:\n  ${leaks.join('\n  ')}`);
  print(report);
}

/** Starts the PostgreSQL that the tests of packages share. */
async function addPostgres(
  config: ServiceConfig,
  user: UserIds | undefined,
  env: NodeJS.ProcessEnv,
  cleanUps: (() => Promise<unknown>)[],
): Promise<void> {
  const postgres = await progress.step('PostgreSQL for the tests', () => startTestPostgres(config, user));
  cleanUps.push(postgres.stop);
  env.SANDBAR_TEST_DATABASE_URL = postgres.url;
}

/** Starts the service that the end-to-end and conformance tests use. */
async function addService(
  base: ServiceConfig,
  user: UserIds | undefined,
  env: NodeJS.ProcessEnv,
  cleanUps: (() => Promise<unknown>)[],
): Promise<void> {
  const config = await onFreePorts(base);
  const service = await startService({ config, user, progress, signal: stop });
  cleanUps.push(() => service.stop());
  env.SANDBAR_HOME = config.home;
  env.SANDBAR_BASE_URL = service.baseUrl;
  env.SANDBAR_API_KEY = service.credentials.api_key;
}

async function runGroups(
  checkout: string,
  files: readonly string[],
  env: NodeJS.ProcessEnv,
  { summaries, details, durations }: Report,
): Promise<void> {
  const show = (text: string) => void process.stdout.write(text);
  for (const { name, files: group, filesAtOnce } of groupTestFiles(files)) {
    stop.throwIfAborted();
    progress.say(`Running ${group.length} files of ${name}`);
    const startedAt = performance.now();
    const result = await runNodeTests(checkout, group, { env, signal: stop, filesAtOnce, show });
    if (!result.hasPassed) failures.push(name);
    summaries.push(`${name}: ${result.summary} (${formatDuration(performance.now() - startedAt)})`);
    details.push(...result.failures);
    for (const [file, ms] of result.durations) durations.set(file, ms);
  }
}

/** Prints the report. The failures come last, because a reader sees the end of the output first. */
function print({ summaries, details, durations }: Report): void {
  const slowest = [...durations].sort(([, a], [, b]) => b - a).slice(0, SLOWEST);
  console.log('\nSlowest files, in seconds');
  for (const [file, ms] of slowest) console.log(`${(ms / 1000).toFixed(1).padStart(8)}  ${file}`);
  console.log(failures.length === 0 ? '\nAll passed.' : `\nFAILED: ${failures.join(', ')}`);
  console.log([...summaries, ...details].join('\n'));
}

/** Chooses free ports, because the person who runs the tests may have a service on the default ports. */
async function onFreePorts(base: ServiceConfig): Promise<ServiceConfig> {
  const [port = 0, metricsPort = 0] = await freePorts(2);
  return {
    ...base,
    listen: { host: '127.0.0.1', port },
    metricsListen: { host: '127.0.0.1', port: metricsPort },
    databaseUrl: undefined,
  };
}

const began = performance.now();
try {
  await main();
  process.exitCode = failures.length === 0 ? 0 : 1;
} catch (error) {
  if (stop.aborted) console.error('\nStopped.');
  else console.error(error instanceof Problem ? `\n${error.message}` : error);
  process.exitCode = stop.aborted ? 130 : 1;
}
if (process.exitCode !== 0) console.error(`npm test failed after ${formatDuration(performance.now() - began)}`);
process.exit();
