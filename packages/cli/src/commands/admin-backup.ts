// `sandbar admin backup` and `sandbar admin restore`: the files of the service on this computer.
import path from 'node:path';
import type { Command } from '@commander-js/extra-typings';
import { printLine, printNotice } from '../print.ts';
import { withService } from '../service-code.ts';

const load = async () => ({
  ...(await import('@sandbar/service/config.ts')),
  ...(await import('@sandbar/service/backup/back-up.ts')),
  ...(await import('@sandbar/service/backup/restore.ts')),
  ...(await import('@sandbar/service/progress.ts')),
  ...(await import('@sandbar/service/setup/service-user.ts')),
});

export function defineBackup(command: Command): void {
  command
    .description('backs up the stopped service, or the database of the running one, into a new folder')
    .argument('<folder>', 'the folder, on another disk or computer; it gets all secrets and data, without encryption')
    .option('--database', 'while the service runs: only its own PostgreSQL, with the keys')
    .addHelpText(
      'after',
      `
Stop the service before (sandbar down). The back-up has accounts, keys, the ledger, machines with their disks, volumes,
snapshots and images, and a checksum of each archive. A PostgreSQL of your own (SANDBAR_DATABASE_URL) is not in it: dump it
while the service is stopped.`,
    )
    .action(async (folder, { database }) => {
      await withService(load, async ({ readConfig, backUp, backUpDatabase }) => {
        const config = readConfig(process.env, process.getuid?.() ?? -1);
        const archives = await (database ? backUpDatabase : backUp)(config, path.resolve(folder));
        for (const { file, bytes } of archives) printLine(`${file.padEnd(20)}${(bytes / 1e6).toFixed(1)} MB`);
        if (archives.some(({ part }) => part === 'database') || config.databaseUrl === undefined) return;
        printNotice('the database is not in it, because it is a PostgreSQL of your own: dump it before the next start');
      });
    });
}

export function defineRestore(command: Command): void {
  command
    .description('puts a back-up of sandbar admin backup back, where it was')
    .argument('<folder>', 'the folder of the back-up')
    .option('--database', 'only the database')
    .addHelpText(
      'after',
      `
Checks the archives, then restores them to the paths that they were taken from. It writes over nothing, so move away what
is there. Restore before the first start on a new computer. After an interruption, run it again.`,
    )
    .action(async (folder, { database }) => {
      await withService(load, async ({ readConfig, restore, ensureServiceUser, lineProgress }) => {
        const config = readConfig(process.env, process.getuid?.() ?? -1);
        const progress = lineProgress((text) => process.stderr.write(text), false);
        const user = config.isRoot ? await ensureServiceUser(progress) : undefined;
        const isWanted = (part: string) => !database || part === 'database';
        for (const { file } of await restore(config, path.resolve(folder), user, isWanted))
          printLine(`restored ${file}`);
      });
    });
}
