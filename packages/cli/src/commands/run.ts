// `sandbar run`: a machine for one command.
import type { Sandbar } from '@sandbar/sdk/client.ts';
import { ConnectionError } from '@sandbar/sdk/errors.ts';
import { isUnavailable } from '@sandbar/sdk/retry.ts';
import { type Command, connect, onlyGiven, readArguments, readEnvironment, readInteger } from '../command.ts';
import { Interrupted, onInterruption, unlessInterrupted } from '../interruption.ts';
import { readStdin, runJob } from '../run-job.ts';
import { UsageError } from '../usage-error.ts';

const HELP = `Usage: sandbar run [OPTIONS] -- COMMAND [ARGUMENTS]

Creates a machine, runs the command in it with its output live, and destroys the machine. Ends with the command's exit
code; 128 and the signal's number when a signal ended it, 124 when it ran out of time.

  --vcpus N       processors (1)             --user USER     who runs it (root)
  --memory MB     memory, MiB (1024)         --cwd DIR       where it runs (the user's home)
  --rootfs GB     disk, GiB (10)             --env K=V       a variable, as often as needed; K alone passes it on
  --stack NAME    image (base)               --timeout SEC   ends the command after that (3600)
  --name NAME     a label for the machine    -i, --stdin     passes standard input on, up to 512 KiB
  --snapshot ID   a machine from a snapshot  --root-volume ID   one from a kept disk, which is kept again
  --keep          keeps the machine and prints its id to standard error`;

async function runCommand(args: readonly string[]): Promise<number> {
  const { values, positionals, rest } = readArguments(args, {
    vcpus: { type: 'string' },
    memory: { type: 'string' },
    rootfs: { type: 'string' },
    stack: { type: 'string' },
    name: { type: 'string' },
    snapshot: { type: 'string' },
    'root-volume': { type: 'string' },
    user: { type: 'string' },
    cwd: { type: 'string' },
    env: { type: 'string', multiple: true },
    timeout: { type: 'string' },
    stdin: { type: 'boolean', short: 'i', default: false },
    keep: { type: 'boolean', default: false },
  });
  const argv = [...positionals, ...rest];
  if (argv.length === 0) throw new UsageError('no command: sandbar run -- uname -a');
  const spec = onlyGiven({
    name: values.name,
    vcpus: readInteger('--vcpus', values.vcpus),
    memory_mb: readInteger('--memory', values.memory),
    rootfs_size_gb: readInteger('--rootfs', values.rootfs),
    stack: values.stack,
    snapshot_id: values.snapshot,
    root_volume_id: values['root-volume'],
  });
  const job = {
    argv,
    ...onlyGiven({
      user: values.user,
      cwd: values.cwd,
      env: readEnvironment(values.env),
      timeout_sec: readInteger('--timeout', values.timeout),
      stdin: values.stdin ? await readStdin() : undefined,
    }),
  };

  const sandbar = connect();
  const signal = onInterruption();
  let machineId: string | undefined;
  // Not given up on an interruption: a machine that comes of it must be known to be destroyed.
  const creating = sandbar.machines.create(spec);
  try {
    machineId = (await unlessInterrupted(creating, signal)).id;
    if (values.keep) console.error(`sandbar: machine ${machineId} is kept`);
    return await runJob(sandbar, machineId, job, signal);
  } catch (error) {
    if (error instanceof Interrupted) {
      machineId ??= (await creating.catch(() => undefined))?.id;
      return error.exitCode;
    }
    if (machineId !== undefined && !values.keep && isUnavailable(error)) {
      // The command may still run, or have ended well: its result must not be destroyed because nobody could be asked.
      const command = `sandbar machines destroy ${machineId}`;
      console.error(`sandbar: machine ${machineId} is kept, because its command may still run there: ${command}`);
      machineId = undefined;
    }
    throw error;
  } finally {
    // A disk that was a volume before becomes one again.
    const preserveStorage = values['root-volume'] !== undefined;
    if (machineId !== undefined && !values.keep) await destroy(sandbar, machineId, preserveStorage);
  }
}

/** A machine that cannot be destroyed now must be known: it costs memory until somebody does. */
async function destroy(sandbar: Sandbar, machineId: string, preserveStorage: boolean): Promise<void> {
  try {
    const { root_volume_id: volumeId } = await sandbar.machines.destroy(machineId, { preserveStorage });
    if (preserveStorage) console.error(`sandbar: the disk is kept as volume ${volumeId}`);
  } catch (error) {
    const why = error instanceof ConnectionError ? 'the service does not answer' : String(error);
    const again = `sandbar machines destroy ${machineId}${preserveStorage ? ' --keep-disk' : ''}`;
    console.error(`sandbar: machine ${machineId} was not destroyed (${why}): ${again}`);
  }
}

export const run: Command = {
  name: 'run',
  summary: 'runs a command in a machine of its own: sandbar run -- uname -a',
  help: HELP,
  run: runCommand,
};
