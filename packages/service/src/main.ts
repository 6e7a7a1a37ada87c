// The main program of `npm start`, which runs it after installing the node modules: sets up the machine, starts the
// processes, checks them with a test machine, and waits for Ctrl-C.
import { constants } from 'node:os';
import { homePaths } from '@sandbar/contract/home.ts';
import { readConfig, type ServiceConfig } from './config.ts';
import { readCredentials } from './credentials.ts';
import { hasErrorCode, messageOf, Problem } from './problem.ts';
import { formatDuration, lineProgress, type Progress } from './progress.ts';
import { removeReadyFile, writeReadyFile } from './ready-file.ts';
import { checkWithMachine } from './self-check.ts';
import { assertNotRunning, type RunningService, startService } from './service.ts';
import { setUp } from './setup/setup.ts';
import { onStopSignals } from './stop-signals.ts';
import { endChildren } from './supervise/children.ts';
import { spareProcess } from './supervise/oom-score.ts';

async function main(): Promise<number> {
  const began = performance.now();
  const progress = lineProgress((text) => process.stdout.write(text), process.stdout.isTTY);
  const config = readConfig(process.env, process.getuid?.() ?? -1);
  const isSetUpOnly = process.argv.includes('--setup-only');
  const { stop, hurry, wanted } = onStopSignals();

  progress.say('Sandbar');
  readCredentials(homePaths(config.home).credentials);
  if (!isSetUpOnly) assertNotRunning(config.home);
  const { user } = await setUpUnlessStopped(config, progress, stop);
  if (isSetUpOnly) return 0;

  spareProcess(process.pid);
  const service = await startService({ config, user, progress, signal: stop });
  try {
    // A certificate may not be there yet, or its name may not lead here from this machine.
    const isTls = config.certificate !== undefined || config.hasAcme;
    if (!isTls) await checkWithMachine(service.credentials, homePaths(config.home).logs, progress);
    if (!stop.aborted) await writeReadyFile(config.home, service);
  } catch (error) {
    await service.stop(hurry);
    throw error;
  }
  if (!stop.aborted) greet(config, service, progress, performance.now() - began);

  await wanted;
  removeReadyFile(config.home);
  progress.say('\nStopping: machines first, their disks are kept. Ctrl-C again does not wait for them.');
  await service.stop(hurry);
  progress.say('Stopped.');
  return 0;
}

/** Runs the set-up. Ctrl-C ends it, and also ends the commands that it runs (apt, the image build). */
async function setUpUnlessStopped(config: ServiceConfig, progress: Progress, stop: AbortSignal) {
  const stopped = new Promise<never>((_resolve, reject) => {
    stop.addEventListener('abort', () => reject(stop.reason), { once: true });
  });
  try {
    return await Promise.race([setUp(config, progress), stopped]);
  } catch (error) {
    if (stop.aborted) await endChildren();
    throw error;
  }
}

function greet(
  config: ServiceConfig,
  { baseUrl, hasDashboard }: RunningService,
  progress: Progress,
  tookMs: number,
): void {
  const { credentials } = homePaths(config.home);
  // In the default data directory the clients find the credentials without SANDBAR_HOME, so print it only if set.
  const home = config.env.SANDBAR_HOME ? `SANDBAR_HOME='${config.home}' ` : '';
  const key = `$(sed -n 's/.*"api_key": "\\(.*\\)".*/\\1/p' '${credentials}')`;
  const dashboard = hasDashboard ? `  dashboard    ${baseUrl} (e-mail and password: see the credentials)\n` : '';
  progress.say(`
Ready in ${formatDuration(tookMs)}.
${dashboard}  address      ${baseUrl}
  credentials  ${credentials}
  reference    ${baseUrl}/docs

Try, in another terminal:
  ${home}npx sandbar run -- uname -a
  curl -H "Authorization: Bearer ${key}" ${baseUrl}/v1/images
  ${home}npx sandbar ls

Ctrl-C stops it.`);
}

try {
  process.exitCode = await main();
} catch (error) {
  if (error instanceof Problem) {
    console.error(`\n${error.message}`);
    process.exitCode = 1;
  } else if (hasErrorCode(error, 'ENOSPC', 'EDQUOT')) {
    console.error(`\nThe disk is full (${messageOf(error)}): free some space and run npm start again.`);
    process.exitCode = 1;
  } else if (error instanceof Error && error.name === 'StoppedBySignal') {
    console.error('\nStopped before it was ready; the next npm start goes on from here.');
    process.exitCode = 128 + constants.signals.SIGINT;
  } else {
    console.error(error);
    process.exitCode = 1;
  }
}
// After a failed start, timers and sockets may still be open; they must not keep the process alive.
process.exit();
