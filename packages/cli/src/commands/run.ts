// `sandbar run`: creates a machine, runs one command in it, and destroys it.
import type { Command } from '@commander-js/extra-typings';
import type { MachineCreate } from '@sandbar/contract/machine.ts';
import type { Sandbar } from '@sandbar/sdk/client.ts';
import { ConnectionError } from '@sandbar/sdk/errors.ts';
import { isUnavailable } from '@sandbar/sdk/retry.ts';
import { connect } from '../connect.ts';
import { Interrupted, onInterruption, unlessInterrupted } from '../interruption.ts';
import { addJobOptions, addMachineOptions, machineCreateOf } from '../options.ts';
import { printNotice } from '../print.ts';
import { type Program, programOf } from '../program.ts';

export function defineRun(command: Command): void {
  addJobOptions(addMachineOptions(command.argument('<command...>', 'what to run, and its arguments')))
    .usage('[OPTIONS] -- COMMAND [ARGUMENTS]')
    .option('--job-name <name>', 'a label for the job')
    .option('--keep', 'keep the machine, and print its id to standard error')
    .addHelpText(
      'after',
      `
Creates a machine, runs the command in it with its output live, and destroys the machine. Ends with the command's exit
code; 128 and the signal's number when a signal ended it, 124 when it ran out of time. The disk of --root-volume is kept
as a volume again. --expires also ends a machine that outlives this command, as with --keep. With -it the command runs in
a terminal: sandbar run -it -- bash.`,
    )
    .action(async (argv, options) => {
      const program = programOf(argv, options, options.jobName);
      const isKept = options.keep === true;
      process.exitCode = await runInMachine(machineCreateOf(options), program, isKept);
    });
}

/** Creates the machine, runs the program, destroys the machine unless `isKept`, and returns the program's exit code. */
async function runInMachine(spec: MachineCreate, program: Program, isKept: boolean): Promise<number> {
  const sandbar = connect();
  const signal = onInterruption();
  let machineId: string | undefined;
  // An interruption does not abort the create, because the machine must be destroyed and its id is needed for that.
  const creating = sandbar.machines.create(spec);
  try {
    machineId = (await unlessInterrupted(creating, signal)).id;
    if (isKept) printNotice(`machine ${machineId} is kept`);
    return await program(sandbar, machineId, signal);
  } catch (error) {
    if (error instanceof Interrupted) {
      machineId ??= (await creating.catch(() => undefined))?.id;
      return error.exitCode;
    }
    if (machineId !== undefined && !isKept && isUnavailable(error)) {
      // The service did not answer for too long, so the command may still run or have succeeded. Keep the machine.
      const destroyIt = `sandbar machines destroy ${machineId}`;
      printNotice(`machine ${machineId} is kept, because its command may still run there: ${destroyIt}`);
      machineId = undefined;
    }
    throw error;
  } finally {
    // Keep a disk that came from --root-volume: it becomes a volume again.
    const preserveStorage = spec.root_volume_id !== undefined;
    if (machineId !== undefined && !isKept) await destroy(sandbar, machineId, preserveStorage);
  }
}

/** Destroys the machine. If that fails, prints the command that does it, and does not throw. */
async function destroy(sandbar: Sandbar, machineId: string, preserveStorage: boolean): Promise<void> {
  try {
    const { root_volume_id: volumeId } = await sandbar.machines.destroy(machineId, { preserveStorage });
    if (preserveStorage) printNotice(`the disk is kept as volume ${volumeId}`);
  } catch (error) {
    const why = error instanceof ConnectionError ? 'the service does not answer' : String(error);
    const again = `sandbar machines destroy ${machineId}${preserveStorage ? ' --keep-disk' : ''}`;
    printNotice(`machine ${machineId} was not destroyed (${why}): ${again}`);
  }
}
