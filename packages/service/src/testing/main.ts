// `npm test` once the node modules are there: set-up, static checks, then every node test, with one PostgreSQL for all
// of them and one service for the end-to-end tests. Arguments (or SANDBAR_TEST_FILTER) choose test files by path and
// leave the static checks out.
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { readConfig, type ServiceConfig } from '../config.ts';
import { messageOf, Problem } from '../problem.ts';
import { formatDuration, lineProgress } from '../progress.ts';
import { startService } from '../service.ts';
import { setUp } from '../setup/setup.ts';
import { IMPORT_TEST_REQUIREMENTS, installPackages, isPresent, missingPackages } from '../setup/system-packages.ts';
import { onStopSignals } from '../stop-signals.ts';
import { findFreePorts } from '../supervise/ports.ts';
import { waitForDoctor } from './doctor.ts';
import { describeLeaks, listTaps } from './leaks.ts';
import { runNodeTests } from './node-tests.ts';
import { ensureSchemathesis } from './schemathesis.ts';
import { runStaticChecks } from './static-checks.ts';
import { selectTestFiles } from './test-files.ts';
import { startTestPostgres } from './test-postgres.ts';

const { stop } = onStopSignals();
const progress = lineProgress((text) => process.stdout.write(text), process.stdout.isTTY);
const failures: string[] = [];

async function main(): Promise<number> {
  const config = readConfig(
    {
      ...process.env,
      SANDBAR_HOME: await mkdtemp(path.join(tmpdir(), 'sandbar-test-')),
      // The end-to-end tests use several accounts, also where there is no KVM.
      SANDBAR_ALLOW_EMULATED_TENANTS: '1',
    },
    process.getuid?.() ?? -1,
  );
  try {
    return await test(config);
  } finally {
    if (failures.length === 0) await rm(config.home, { recursive: true, force: true });
    else console.log(`The data directory of the tests, with its logs, is kept in ${config.home}`);
  }
}

async function test(base: ServiceConfig): Promise<number> {
  const filters = [...process.argv.slice(2), ...(process.env.SANDBAR_TEST_FILTER ?? '').split(/\s+/)].filter(Boolean);
  const files = selectTestFiles(base.checkout, filters);
  if (files.length === 0) throw new Problem(`No test file matches ${filters.join(' ')}`);

  progress.say('Setting up');
  const { user, goPath } = await setUp(base, progress);
  // Tests that run as root start the service without root too, which needs a little more.
  const forImports = files.some((file) => /\bimages\b/.test(file)) ? IMPORT_TEST_REQUIREMENTS : [];
  const missing = [...missingPackages(false), ...missingPackages(false, isPresent, forImports)];
  if (missing.length > 0) await installPackages(missing, base.isRoot, progress);
  const needsSchemathesis = files.some((file) => file.startsWith('tests/conformance/'));
  const schemathesis = needsSchemathesis
    ? await progress.step('schemathesis', (say) => ensureSchemathesis(base, progress, say))
    : undefined;
  const go = { path: goPath, cacheDir: base.cacheDir };
  if (filters.length === 0) failures.push(...(await runStaticChecks(base.checkout, go, progress, stop)));

  // Each gets what it is meant for and no more: a unit test must not find the service of this machine.
  const env: NodeJS.ProcessEnv = { ...process.env };
  for (const name of ['SANDBAR_HOME', 'SANDBAR_BASE_URL', 'SANDBAR_API_KEY', 'SANDBAR_LISTEN', 'SANDBAR_DATABASE_URL'])
    delete env[name];
  if (schemathesis !== undefined) env.SANDBAR_TEST_SCHEMATHESIS = schemathesis;
  const cleanUps: (() => Promise<unknown>)[] = [];
  let hasService = false;
  const taps = listTaps();
  let summary = '';
  try {
    if (files.some((file) => file.startsWith('packages/'))) {
      const postgres = await progress.step('PostgreSQL for the tests', () => startTestPostgres(base, user));
      cleanUps.push(postgres.stop);
      env.SANDBAR_TEST_DATABASE_URL = postgres.url;
    }
    if (files.some((file) => file.startsWith('tests/'))) {
      const config = await onFreePorts(base);
      const service = await startService({ config, user, progress, signal: stop });
      cleanUps.push(() => service.stop());
      hasService = true;
      Object.assign(env, {
        SANDBAR_HOME: config.home,
        SANDBAR_BASE_URL: service.baseUrl,
        SANDBAR_API_KEY: service.credentials.api_key,
      });
    }
    const summaries: string[] = [];
    const details: string[] = [];
    const show = (text: string) => void process.stdout.write(text);
    for (const { name, files: group, isAlone } of inTurn(files)) {
      stop.throwIfAborted();
      progress.say(`Running ${group.length} files of ${name}`);
      const result = await runNodeTests(base.checkout, group, { env, signal: stop, isAlone, show });
      if (result.exitCode !== 0) failures.push(name);
      summaries.push(`${name}\n${result.summary}`);
      details.push(result.failures);
    }
    // What failed comes last, where it is seen first.
    summary = [...summaries, ...details.filter(Boolean)].join('\n');
    if (hasService && !stop.aborted) {
      const asking = progress.step('sandbar doctor', () => waitForDoctor(base.checkout, base.home));
      await asking.catch((error: unknown) => failures.push(messageOf(error)));
    }
  } finally {
    for (const cleanUp of cleanUps.toReversed()) await cleanUp();
  }
  const leaks = describeLeaks(base.home, taps);
  if (leaks.length > 0) failures.push(`left behind:\n  ${leaks.join('\n  ')}`);

  console.log(failures.length === 0 ? '\nAll passed.' : `\nFAILED: ${failures.join(', ')}`);
  console.log(summary);
  return failures.length === 0 ? 0 : 1;
}

type Group = { name: string; files: string[]; isAlone: boolean };

/**
 * End-to-end files come one at a time, for some kill the processes that all of them use. Conformance comes by itself: it
 * loads the service, whose memory and pace other tests look at.
 */
function inTurn(files: readonly string[]): Group[] {
  const isBelow = (folder: string) => (file: string) => file.startsWith(`tests/${folder}/`);
  const [isConformance, isEndToEnd] = [isBelow('conformance'), isBelow('e2e')];
  const groups: Group[] = [
    { name: 'node tests', files: files.filter((file) => !isConformance(file) && !isEndToEnd(file)), isAlone: false },
    { name: 'end-to-end tests', files: files.filter(isEndToEnd), isAlone: true },
    { name: 'conformance tests', files: files.filter(isConformance), isAlone: false },
  ];
  return groups.filter((group) => group.files.length > 0);
}

/** Not the usual ports: a service of the person who runs the tests may be using them. */
async function onFreePorts(base: ServiceConfig): Promise<ServiceConfig> {
  const [port = 0, metricsPort = 0] = await findFreePorts(2);
  return {
    ...base,
    listen: { host: '127.0.0.1', port },
    metricsListen: { host: '127.0.0.1', port: metricsPort },
    databaseUrl: undefined,
  };
}

const began = performance.now();
try {
  process.exitCode = await main();
} catch (error) {
  if (stop.aborted) console.error('\nStopped.');
  else console.error(error instanceof Problem ? `\n${error.message}` : error);
  process.exitCode = stop.aborted ? 130 : 1;
}
if (process.exitCode !== 0) console.error(`npm test failed after ${formatDuration(performance.now() - began)}`);
process.exit();
