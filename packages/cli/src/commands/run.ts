// `sandbar run`: creates a machine, runs one command in it, and destroys it.
import { type Command, Option } from '@commander-js/extra-typings';
import type { MachineCreate } from '@sandbar/contract/machine.ts';
import type { Client } from '@sandbar/sdk/client.ts';
import { ConnectionError } from '@sandbar/sdk/errors.ts';
import { isUnavailable } from '@sandbar/sdk/retry.ts';
import { parseBoolean } from '../arguments.ts';
import { connect } from '../connect.ts';
import { addExamples } from '../examples.ts';
import { Interrupted, onInterruption, unlessInterrupted } from '../interruption.ts';
import { Lease } from '../lease.ts';
import { addJobOptions, addMachineOptions, machineCreateOf, withSourceIds } from '../options.ts';
import { printNotice } from '../print.ts';
import { type Program, programOf } from '../program.ts';

export function defineRun(command: Command): void {
  const defined = addJobOptions(addMachineOptions(command.argument('<command...>', 'what to run, and its arguments')))
    .usage('[OPTIONS] -- COMMAND [ARGUMENTS]')
    .option('--job-name <name>', 'a label for the job')
    .addOption(
      new Option('--rm [boolean]', 'destroy the machine at the end; --rm=false keeps it and prints its id on stderr')
        .argParser(parseBoolean)
        .preset('true')
        .default(true),
    )
    // The former name of --rm=false.
    .addOption(new Option('--keep').hideHelp())
    .addHelpText(
      'after',
      `
Creates a machine, runs the command in it with its output live, and destroys the machine. Ends with the command's exit
code; 128 and the signal's number when a signal ended it, 124 when it ran out of time. The disk of --root-volume is kept
as a volume again. --expires counts from the creation and also ends a machine that outlives this command, as with
--rm=false. With -it the command runs in a terminal.
When sandbar itself is killed, or stopped for longer, the machine ends 2 minutes later (SANDBAR_RUN_LEASE_SEC).`,
    )
    .action(async (argv, options) => {
      const program = programOf(argv, options, options.jobName);
      const isKept = options.keep === true || options.rm === false;
      const client = connect();
      const signal = onInterruption();
      const spec = machineCreateOf(await unlessInterrupted(withSourceIds(client, options), signal));
      process.exitCode = await runInMachine(client, spec, program, isKept, signal);
    });
  addExamples(
    defined,
    'sandbar run -- uname -a',
    'sandbar run --stack python -- python3 -c "print(6 * 7)"',
    'sandbar run -it -- bash',
    'sandbar run --rm=false --expires 1h --name web -- apt-get install -y nginx',
  );
}

/** Creates the machine, runs the program, destroys the machine unless `isKept`, and returns the program's exit code. */
async function runInMachine(
  client: Client,
  spec: MachineCreate,
  program: Program,
  isKept: boolean,
  signal: AbortSignal,
): Promise<number> {
  const { machines } = client;
  const lease = new Lease(spec);
  let machineId: string | undefined;
  // An interruption does not abort the create, because the machine must be destroyed and its id is needed for that.
  const creating = machines.create({ ...spec, ...lease.first() });
  try {
    machineId = (await unlessInterrupted(creating, signal)).id;
    lease.keep(machines, machineId);
    if (isKept) printNotice(`machine ${machineId} is kept`);
    return await program(client, machineId, signal);
  } catch (error) {
    if (error instanceof Interrupted) {
      machineId ??= (await creating.catch(() => undefined))?.id;
    } else if (machineId !== undefined && !isKept && isUnavailable(error)) {
      // The service did not answer for too long, so the command may still run or have succeeded. Keep the machine.
      printNotice(
        `machine ${machineId} is left, because its command may still run there; it ends within minutes unless you change that: sandbar machine set ${machineId} --expires never`,
      );
      machineId = undefined;
    }
    throw error;
  } finally {
    if (machineId !== undefined && isKept) await handOver(lease, client, machineId);
    lease.stop();
    // Keep a disk that came from --root-volume: it becomes a volume again.
    const preserveStorage = spec.root_volume_id !== undefined;
    if (machineId !== undefined && !isKept) await destroy(client, machineId, preserveStorage);
  }
}

/** Sets the expiry of a kept machine. If that fails, prints the command that does it, and does not throw. */
async function handOver(lease: Lease, { machines }: Client, machineId: string): Promise<void> {
  try {
    await lease.handOver(machines, machineId);
  } catch (error) {
    printNotice(
      `machine ${machineId} ends within minutes, because its expiry was not changed (${reasonOf(error)}): sandbar machine set ${machineId} --expires never`,
    );
  }
}

/** Destroys the machine. If that fails, prints the command that does it, and does not throw. */
async function destroy({ machines }: Client, machineId: string, preserveStorage: boolean): Promise<void> {
  try {
    const { root_volume_id: volumeId } = await machines.destroy(machineId, { preserveStorage });
    if (preserveStorage) printNotice(`the disk is kept as volume ${volumeId}`);
  } catch (error) {
    const again = `sandbar machine rm ${machineId}${preserveStorage ? ' --keep-disk' : ''}`;
    printNotice(`machine ${machineId} was not destroyed (${reasonOf(error)}): ${again}`);
  }
}

function reasonOf(error: unknown): string {
  if (error instanceof ConnectionError) return 'the service does not answer';
  return error instanceof Error ? error.message : String(error);
}
