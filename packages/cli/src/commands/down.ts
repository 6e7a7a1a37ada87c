// `sandbar down`: stops the service that runs on this computer.
import type { Command } from '@commander-js/extra-typings';
import { addExamples } from '../examples.ts';
import { printLine, printNotice } from '../print.ts';
import { withService } from '../service-code.ts';

export function defineDown(command: Command): void {
  command
    .addHelpText(
      'after',
      `
Runs on the computer of the service, and stops it: the machines first, whose disks are kept. sandbar up starts it again.
SANDBAR_HOME names the data directory.
Exit code: 0 when the service is stopped, also when it did not run.`,
    )
    .action(async () => {
      await withService(
        async () => ({
          ...(await import('@sandbar/service/config.ts')),
          ...(await import('@sandbar/service/background/stop.ts')),
        }),
        async ({ readConfig, stopService }) => {
          const { home } = readConfig(process.env, process.getuid?.() ?? -1);
          const didRun = await stopService(home, printNotice);
          printLine(didRun ? 'Sandbar is stopped.' : `Sandbar does not run on ${home}.`);
        },
      );
    });
  addExamples(command, 'sandbar down');
}
