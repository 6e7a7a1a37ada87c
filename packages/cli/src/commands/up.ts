// `sandbar up`: starts the service of this checkout, in the background or in this terminal.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { constants } from 'node:os';
import type { Command } from '@commander-js/extra-typings';
import { homePaths } from '@sandbar/contract/home.ts';
import { addExamples } from '../examples.ts';
import { Interrupted, onInterruption } from '../interruption.ts';
import { printLine, toPrintable } from '../print.ts';
import { withService } from '../service-code.ts';

const FORWARDED = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;

export function defineUp(command: Command): void {
  command
    .option('--foreground', 'run in this terminal until Ctrl-C, as npm start does')
    .addHelpText(
      'after',
      `
Runs on the computer of the service, and does what npm start does. SANDBAR_HOME names the data directory. The output of
the service is in its folder logs. The first start downloads packages and builds an image, which takes minutes; Ctrl-C
ends it.
Exit code: 0 when the service is ready, also when it ran before.`,
    )
    .action(async ({ foreground }) => {
      await withService(
        async () => ({
          ...(await import('@sandbar/service/config.ts')),
          ...(await import('@sandbar/service/background/start.ts')),
        }),
        async ({ readConfig, startInBackground, startScript }) => {
          const config = readConfig(process.env, process.getuid?.() ?? -1);
          if (foreground) process.exitCode = await runHere(startScript(config));
          else await startBehind(startInBackground, config);
        },
      );
    });
  addExamples(command, 'sandbar up');
}

type Start = typeof import('@sandbar/service/background/start.ts');

async function startBehind(
  startInBackground: Start['startInBackground'],
  config: Parameters<Start['startInBackground']>[0],
): Promise<void> {
  // Show the progress of the start only on a terminal. A script gets the result, or the end of the progress output if
  // the start fails.
  const say = (text: string) =>
    process.stderr.isTTY && process.stderr.write(text.split('\n').map(toPrintable).join('\n'));
  try {
    const { isNew, base_url, dashboard_url } = await startInBackground(config, say, onInterruption());
    const { credentials, logs } = homePaths(config.home);
    printLine(isNew ? 'Sandbar is ready.' : 'Sandbar runs already.');
    printLine(`  address      ${base_url}`);
    if (dashboard_url !== null) printLine(`  dashboard    ${dashboard_url} (e-mail and password: see the credentials)`);
    printLine(`  credentials  ${credentials}`);
    printLine(`  logs         ${logs}`);
    printLine('sandbar status tells how it is, sandbar down stops it.');
  } catch (error) {
    if (!(error instanceof Interrupted)) throw error;
    process.exitCode = error.exitCode;
  }
}

/** Runs the script of the service in this terminal, and resolves with its exit code. */
async function runHere(script: string): Promise<number> {
  const child = spawn(process.execPath, [script], { stdio: 'inherit' });
  // At Ctrl-C the service gets a signal from the terminal and another one from here. This is harmless, because the
  // service counts several signals within half a second as one.
  for (const signal of FORWARDED) process.on(signal, () => child.kill(signal));
  const [code, signal] = (await once(child, 'exit')) as [number | null, NodeJS.Signals | null];
  return code ?? 128 + (signal === null ? 0 : constants.signals[signal]);
}
