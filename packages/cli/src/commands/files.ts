// `sandbar files`: lists, shows, deletes, makes, moves and watches files in a machine.
import { pipeline } from 'node:stream/promises';
import type { Command } from '@commander-js/extra-typings';
import type { FileEntry, FileEvent } from '@sandbar/contract/file.ts';
import { type Files, pathOf } from '@sandbar/sdk/files.ts';
import { parseInteger, UsageError } from '../arguments.ts';
import { connect } from '../connect.ts';
import { addExamples } from '../examples.ts';
import { onInterruption, unlessInterrupted } from '../interruption.ts';
import { printJson, printLine, printRows } from '../print.ts';
import { collectRemotePaths, filesOf, parseMode, parseRemotePath, type RemotePath } from '../remote-path.ts';

/** Returns the path for a request. With `--encoded` the user gives it percent-encoded, so it can have any bytes. */
const exact = ({ path }: RemotePath, isEncoded = false) => (isEncoded ? pathOf({ path, path_encoded: path }) : path);
const ENCODED = ['--encoded', 'paths are percent-encoded, for names that are not UTF-8'] as const;

/** Finds the machine of every path. Commands call this first, so that an unknown machine prevents all changes. */
async function openAll(remotes: readonly RemotePath[]): Promise<{ files: Files; remote: RemotePath }[]> {
  const client = connect();
  const opened: { files: Files; remote: RemotePath }[] = [];
  for (const remote of remotes) opened.push({ files: await filesOf(client, remote), remote });
  return opened;
}

export function defineFiles(command: Command): void {
  command.addHelpText('after', '\nPaths are MACHINE:/path. sandbar cp copies files and folders in both directions.');
  addExamples(command, 'sandbar files ls web:/root', 'sandbar files cat web:/etc/hostname');
  defineLs(command.command('ls'));
  defineCat(command.command('cat'));
  defineStat(command.command('stat'));
  defineRm(command.command('rm'));
  defineMkdir(command.command('mkdir'));
  defineMv(command.command('mv'));
  defineWatch(command.command('watch'));
}

function defineLs(command: Command): void {
  const defined = command
    .description('lists a directory')
    .argument('<path>', 'MACHINE:/path of a directory', parseRemotePath)
    .option('--depth <n>', 'how many levels below the path (1)', parseInteger)
    .option(...ENCODED)
    .option('--json', 'print the answer of the API')
    .action(async (remote, { depth, encoded, json }) => {
      const files = await filesOf(connect(), remote);
      const entries = await files.list(exact(remote, encoded), { depth });
      if (json) printJson({ entries });
      else printEntries(entries);
    });
  addExamples(defined, 'sandbar files ls web:/root', 'sandbar files ls web:/etc --depth 2 --json');
}

function defineCat(command: Command): void {
  const defined = command
    .description('prints files')
    .argument('<path...>', 'MACHINE:/path of the files', collectRemotePaths)
    .option(...ENCODED)
    .action(async (remotes, { encoded }) => {
      for (const { files, remote } of await openAll(remotes)) {
        await pipeline(files.stream(exact(remote, encoded)), process.stdout, { end: false });
      }
    });
  addExamples(defined, 'sandbar files cat web:/etc/hostname');
}

function defineStat(command: Command): void {
  const defined = command
    .description('describes files')
    .argument('<path...>', 'MACHINE:/path of the files', collectRemotePaths)
    .option(...ENCODED)
    .option('--json', 'print the answer of the API')
    .action(async (remotes, { encoded, json }) => {
      const entries: FileEntry[] = [];
      for (const { files, remote } of await openAll(remotes)) entries.push(await files.stat(exact(remote, encoded)));
      if (json) printJson(entries.length === 1 ? entries[0] : entries);
      else printEntries(entries);
    });
  addExamples(defined, 'sandbar files stat web:/etc/hostname');
}

function defineRm(command: Command): void {
  const defined = command
    .description('deletes files, and empty directories, without asking')
    .argument('<path...>', 'MACHINE:/path of the files', collectRemotePaths)
    .option('-r, --recursive', 'delete directories with everything in them')
    .option(...ENCODED)
    .action(async (remotes, { recursive, encoded }) => {
      for (const { files, remote } of await openAll(remotes)) {
        await files.remove(exact(remote, encoded), { recursive });
      }
    });
  addExamples(defined, 'sandbar files rm web:/root/notes.txt', 'sandbar files rm -r web:/root/build');
}

function defineMkdir(command: Command): void {
  const defined = command
    .description('makes directories, and those above them that are missing')
    .argument('<path...>', 'MACHINE:/path of the directories', collectRemotePaths)
    .option('--mode <mode>', 'permission bits, octal (0755)', parseMode)
    .option('--user <user>', 'the owner in the machine (root)')
    .option(...ENCODED)
    .action(async (remotes, { mode, user, encoded }) => {
      for (const { files, remote } of await openAll(remotes)) {
        await files.mkdir(exact(remote, encoded), { mode, user });
      }
    });
  addExamples(defined, 'sandbar files mkdir web:/srv/app --mode 0750');
}

function defineMv(command: Command): void {
  const defined = command
    .description('moves a file or directory within a machine')
    .argument('<from>', 'MACHINE:/path of now', parseRemotePath)
    .argument('<to>', 'MACHINE:/path of later', parseRemotePath)
    .option('--overwrite', 'replace what is at the new path')
    .option(...ENCODED)
    .action(async (from, to, { overwrite, encoded }) => {
      if (from.machine !== to.machine) throw new UsageError('both paths must be in the same machine');
      const files = await filesOf(connect(), from);
      await files.move(exact(from, encoded), exact(to, encoded), { overwrite });
    });
  addExamples(defined, 'sandbar files mv web:/root/a.txt web:/root/b.txt --overwrite');
}

function defineWatch(command: Command): void {
  const defined = command
    .description('prints the changes of a file or directory until it is removed')
    .argument('<path>', 'MACHINE:/path', parseRemotePath)
    .option('--no-recursive', 'not what is below its directories')
    .option(...ENCODED)
    .option('--json', 'print each event of the API as a line of JSON')
    .action(async (remote, { recursive, encoded, json }) => {
      const signal = onInterruption();
      const files = await unlessInterrupted(filesOf(connect(), remote), signal);
      for await (const event of files.watch(exact(remote, encoded), { recursive, signal })) {
        if (json) console.log(JSON.stringify(event));
        else printLine(describeEvent(event));
      }
    });
  addExamples(defined, 'sandbar files watch web:/root');
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
  printRows(['MODE', 'USER', 'GROUP', 'BYTES', 'MODIFIED', 'PATH'], rows, 'No files.');
}
