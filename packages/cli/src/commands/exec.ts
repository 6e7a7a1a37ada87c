// `sandbar exec`: a command in a machine that is there.
import { type Command, connect, onlyGiven, readArguments, readEnvironment, readInteger } from '../command.ts';
import { Interrupted, onInterruption } from '../interruption.ts';
import { readStdin, runJob } from '../run-job.ts';
import { UsageError } from '../usage-error.ts';

const HELP = `Usage: sandbar exec MACHINE [OPTIONS] -- COMMAND [ARGUMENTS]

Runs the command in a running machine with its output live, and ends with its exit code. Ctrl-C cancels it.

  --user USER     who runs it (root)         --timeout SEC   ends the command after that (3600)
  --cwd DIR       where it runs              -i, --stdin     passes standard input on, up to 512 KiB
  --env K=V       a variable, as often as needed; K alone passes it on`;

async function runExec(args: readonly string[]): Promise<number> {
  const { values, positionals, rest } = readArguments(args, {
    user: { type: 'string' },
    cwd: { type: 'string' },
    env: { type: 'string', multiple: true },
    timeout: { type: 'string' },
    stdin: { type: 'boolean', short: 'i', default: false },
  });
  const [machineId, ...command] = positionals;
  const argv = [...command, ...rest];
  if (machineId === undefined || argv.length === 0) {
    throw new UsageError('a machine and a command are needed: sandbar exec MACHINE -- uname -a');
  }
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
  try {
    return await runJob(connect(), machineId, job, onInterruption());
  } catch (error) {
    if (error instanceof Interrupted) return error.exitCode;
    throw error;
  }
}

export const exec: Command = {
  name: 'exec',
  summary: 'runs a command in a machine: sandbar exec MACHINE -- ls /',
  help: HELP,
  run: runExec,
};
