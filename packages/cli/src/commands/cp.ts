// `sandbar cp`: copies files and folders between this computer and a machine.
import type { Command } from '@commander-js/extra-typings';
import { SandbarError } from '@sandbar/sdk/service-errors.ts';
import { UsageError } from '../arguments.ts';
import { connect } from '../connect.ts';
import { copyDown } from '../copy-down.ts';
import { CopyError } from '../copy-error.ts';
import { copyUp } from '../copy-up.ts';
import { addExamples } from '../examples.ts';
import { Interrupted, onInterruption, unlessInterrupted } from '../interruption.ts';
import { filesOf, findRemotePath, type RemotePath } from '../remote-path.ts';
import { BY_NAME } from '../resolve-id.ts';

export function defineCp(command: Command): void {
  const defined = command
    .argument('<source>', 'a path here or MACHINE:/path; - is standard input')
    .argument('<target>', 'MACHINE:/path or a path here; - is standard output')
    .usage('SOURCE TARGET [OPTIONS]')
    .option('--user <user>', 'the owner of the files in the machine (root)')
    .option('-q, --quiet', 'show no progress')
    .addHelpText(
      'after',
      `
MACHINE is a machine ${BY_NAME}. Folders are copied with everything in them. Into a folder that exists, the copy gets the name of the source; a source
that ends with /. is copied without its own name. A file appears whole or not at all, and a file transfer that breaks
off is continued.`,
    )
    .action(async (source, target, { user, quiet: isQuiet = false }) => {
      const [from, to] = [findRemotePath(source), findRemotePath(target)];
      if ((from === undefined) === (to === undefined)) {
        throw new UsageError('exactly one of SOURCE and TARGET must be in a machine: MACHINE:/path');
      }
      const options = { user, isQuiet, signal: onInterruption() };
      const sandbar = connect();
      const find = (remote: RemotePath) => unlessInterrupted(filesOf(sandbar, remote), options.signal);
      try {
        if (to) await copyUp(await find(to), source, to.path, options);
        if (from) await copyDown(await find(from), from.path, target, options);
      } catch (error) {
        const { reason } = options.signal;
        if (!(reason instanceof Interrupted)) throw explain(error);
        throw reason;
      }
    });
  addExamples(
    defined,
    'sandbar cp notes.txt web:/root/notes.txt',
    'sandbar cp web:/var/log ./logs',
    'tar c . | sandbar cp - web:/root/all.tar',
  );
}

/**
 * Turns errors of the file system and of the tar library into a CopyError. These have the property `code`, and their
 * messages are clear enough to be shown unchanged.
 */
function explain(error: unknown): unknown {
  const isLocal = error instanceof Error && !(error instanceof SandbarError) && 'code' in error;
  return isLocal ? new CopyError(error.message, { cause: error }) : error;
}
