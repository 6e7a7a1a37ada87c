// `sandbar files`: lists, shows, deletes, makes, moves and watches files in a machine.
import { pipeline } from 'node:stream/promises';
import type { Command } from '@commander-js/extra-typings';
import type { FileEntry, FileEvent } from '@sandbar/contract/file.ts';
import { type Files, pathOf } from '@sandbar/sdk/files.ts';
import { parseInteger, UsageError } from '../arguments.ts';
import { connect } from '../connect.ts';
import { Interrupted, onInterruption } from '../interruption.ts';
import { printJson, printLine, printTable } from '../print.ts';
import { collectRemotePaths, parseMode, parseRemotePath, type RemotePath } from '../remote-path.ts';

const filesOf = ({ machineId }: RemotePath): Files => connect().machine(machineId).files;
/** With `--encoded` a path is percent-encoded, so that any bytes can be given. */
const exact = ({ path }: RemotePath, isEncoded = false) => (isEncoded ? pathOf({ path, path_encoded: path }) : path);
const ENCODED = ['--encoded', 'paths are percent-encoded, for names that are not UTF-8'] as const;

export function defineFiles(command: Command): void {
  command.addHelpText('after', '\nPaths are MACHINE:/path. sandbar cp copies files and folders in both directions.');
  command
    .command('ls')
    .description('lists a directory')
    .argument('<path>', 'MACHINE:/path of a directory', parseRemotePath)
    .option('--depth <n>', 'how many levels below the path (1)', parseInteger)
    .option(...ENCODED)
    .option('--json', 'print the answer of the API')
    .action(async (remote, { depth, encoded, json }) => {
      const entries = await filesOf(remote).list(exact(remote, encoded), { depth });
      if (json) printJson({ entries });
      else printEntries(entries);
    });
  command
    .command('cat')
    .description('prints files')
    .argument('<path...>', 'MACHINE:/path of the files', collectRemotePaths)
    .option(...ENCODED)
    .action(async (remotes, { encoded }) => {
      for (const remote of remotes) {
        await pipeline(filesOf(remote).stream(exact(remote, encoded)), process.stdout, { end: false });
      }
    });
  command
    .command('stat')
    .description('describes files')
    .argument('<path...>', 'MACHINE:/path of the files', collectRemotePaths)
    .option(...ENCODED)
    .option('--json', 'print the answer of the API')
    .action(async (remotes, { encoded, json }) => {
      const entries: FileEntry[] = [];
      for (const remote of remotes) entries.push(await filesOf(remote).stat(exact(remote, encoded)));
      if (json) printJson(entries.length === 1 ? entries[0] : entries);
      else printEntries(entries);
    });
  command
    .command('rm')
    .description('deletes files, and empty directories')
    .argument('<path...>', 'MACHINE:/path of the files', collectRemotePaths)
    .option('-r, --recursive', 'delete directories with everything in them')
    .option(...ENCODED)
    .action(async (remotes, { recursive, encoded }) => {
      for (const remote of remotes) await filesOf(remote).remove(exact(remote, encoded), { recursive });
    });
  command
    .command('mkdir')
    .description('makes directories, and those above them that are missing')
    .argument('<path...>', 'MACHINE:/path of the directories', collectRemotePaths)
    .option('--mode <mode>', 'permission bits, octal (0755)', parseMode)
    .option('--user <user>', 'the owner in the machine (root)')
    .option(...ENCODED)
    .action(async (remotes, { mode, user, encoded }) => {
      for (const remote of remotes) await filesOf(remote).mkdir(exact(remote, encoded), { mode, user });
    });
  command
    .command('mv')
    .description('moves a file or directory within a machine')
    .argument('<from>', 'MACHINE:/path of now', parseRemotePath)
    .argument('<to>', 'MACHINE:/path of later', parseRemotePath)
    .option('--overwrite', 'replace what is at the new path')
    .option(...ENCODED)
    .action(async (from, to, { overwrite, encoded }) => {
      if (from.machineId !== to.machineId) throw new UsageError('both paths must be in the same machine');
      await filesOf(from).move(exact(from, encoded), exact(to, encoded), { overwrite });
    });
  command
    .command('watch')
    .description('prints the changes of a file or directory until it is removed')
    .argument('<path>', 'MACHINE:/path', parseRemotePath)
    .option('--no-recursive', 'not what is below its directories')
    .option(...ENCODED)
    .option('--json', 'print each event of the API as a line of JSON')
    .action(async (remote, { recursive, encoded, json }) => {
      const signal = onInterruption();
      try {
        for await (const event of filesOf(remote).watch(exact(remote, encoded), { recursive, signal })) {
          if (json) console.log(JSON.stringify(event));
          else printLine(describeEvent(event));
        }
      } catch (error) {
        if (!(signal.reason instanceof Interrupted)) throw error;
        process.exitCode = signal.reason.exitCode;
      }
    });
}

function describeEvent({ type, path, from }: FileEvent): string {
  if (type === 'renamed') return `renamed ${from} ${path}`;
  return path === undefined ? type : `${type} ${path}`;
}

function printEntries(entries: readonly FileEntry[]): void {
  const letters = { file: '-', directory: 'd', symlink: 'l', other: '?' };
  const rows = entries.map((entry) => [
    `${letters[entry.type]}${entry.mode}`,
    entry.user,
    entry.group,
    `${entry.size}`,
    entry.modified_at,
    entry.target === undefined ? entry.path : `${entry.path} -> ${entry.target}`,
  ]);
  if (rows.length === 0) printLine('No files.');
  else printTable(['MODE', 'USER', 'GROUP', 'BYTES', 'MODIFIED', 'PATH'], rows);
}
