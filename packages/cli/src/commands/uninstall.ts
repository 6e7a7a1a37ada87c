// `sandbar uninstall`: removes the service from this computer.
import type { Command } from '@commander-js/extra-typings';
import { confirm, YES_OPTION } from '../confirm.ts';
import { addExamples } from '../examples.ts';
import { printLine, printNotice } from '../print.ts';
import { withService } from '../service-code.ts';

export function defineUninstall(command: Command): void {
  command
    .option('--purge', 'also remove the data directory, with all disks, snapshots and accounts, and the cache')
    .option(...YES_OPTION)
    .addHelpText(
      'after',
      `
Runs on the computer of the service. Stops it, and removes the processes, bridges, packet filter, control groups and
mounts of its machines. Without --purge the data stays, and sandbar up goes on from there. SANDBAR_HOME names the data
directory, SANDBAR_CACHE the cache. The checkout, the system packages and the system user sandbar stay.`,
    )
    .action(async ({ purge, yes }) => {
      await withService(
        async () => ({
          ...(await import('@sandbar/service/config.ts')),
          ...(await import('@sandbar/service/background/uninstall.ts')),
        }),
        async ({ readConfig, assertOurs, uninstall }) => {
          const config = readConfig(process.env, process.getuid?.() ?? -1);
          assertOurs(config.home);
          const what = purge
            ? `Stop Sandbar and delete all of its data in ${config.home}, and its cache in ${config.cacheDir}?`
            : `Stop Sandbar on ${config.home} and remove its network and processes? The data stays.`;
          await confirm(what, yes);
          await uninstall(config, purge === true, printNotice);
          printLine(purge ? `Sandbar and its data are removed.` : `Sandbar is removed; its data is in ${config.home}.`);
        },
      );
    });
  addExamples(command, 'sandbar uninstall --purge');
}
