// The options that several commands share: those of a machine (`run`, `machine create`, `machine set`) and those of a
// job (`run`, `exec`). An `add…` function adds options to a command. A `…Of` function turns their values into a
// request.
import { type Command, Option, type OptionValues } from '@commander-js/extra-typings';
import type { ExecCreate } from '@sandbar/contract/exec.ts';
import type { MachineCreate, MachineUpdate } from '@sandbar/contract/machine.ts';
import type { ExpiryAction } from '@sandbar/contract/machine-states.ts';
import type { TerminalSessionCreate } from '@sandbar/contract/terminal.ts';
import type { Client } from '@sandbar/sdk/client.ts';
import {
  type BootVolume,
  collectPairs,
  collectVariables,
  collectVolumes,
  onlyGiven,
  parseExpiry,
  parseInteger,
  UsageError,
} from './arguments.ts';
import { inTurn } from './in-turn.ts';
import { resolveGiven, resolveId } from './resolve-id.ts';

/** A copy of the contract's list, because importing the list would load all schemas and double the start-up time. */
const EXPIRY_ACTIONS = ['destroy', 'stop'] as const satisfies readonly ExpiryAction[];

type LabelOptions = {
  name?: string;
  metadata?: Record<string, string>;
  expires?: number | 'never';
  onExpiry?: ExpiryAction;
};
export type MachineOptions = LabelOptions & {
  vcpus?: number;
  memory?: number;
  rootfs?: number;
  stack?: string;
  snapshot?: string;
  rootVolume?: string;
  volume?: BootVolume[];
};
export type JobOptions = {
  user?: string;
  cwd?: string;
  env?: Record<string, string>;
  timeout?: number;
  stdin?: true;
  mergeOutput?: true;
  tty?: true;
};

/** Adds the options for the fields that can also be changed after the creation: name, metadata and expiry. */
export function addLabelOptions<A extends unknown[], O extends OptionValues>(command: Command<A, O>) {
  command
    .option('--name <name>', 'a label for the machine')
    .option('--metadata <key=value>', 'metadata, as often as needed', collectPairs)
    .option('--expires <duration>', 'end the machine after a time such as 90s, 30m, 1h or 2d (never)', parseExpiry)
    .addOption(
      new Option(
        '--on-expiry <action>',
        'what --expires does then (destroy); a machine with snapshots is stopped',
      ).choices(EXPIRY_ACTIONS),
    );
  return command as unknown as Command<A, O & LabelOptions>;
}

export function addMachineOptions<A extends unknown[], O extends OptionValues>(command: Command<A, O>) {
  command
    .option('--vcpus <n>', 'processors (1)', parseInteger)
    .option('--memory <mb>', 'memory, MiB (1024)', parseInteger)
    .option('--rootfs <gb>', 'disk, GiB (10)', parseInteger)
    .option('--stack <name>', 'image (base)')
    .option('--snapshot <snapshot>', 'create the machine from this snapshot')
    .option('--root-volume <volume>', 'boot from this kept disk')
    .option(
      '--volume <volume[:path]>',
      'attach this volume, mounted at PATH (/mnt/VOLUME); as often as needed',
      collectVolumes,
    );
  return addLabelOptions(command) as unknown as Command<A, O & MachineOptions>;
}

export function addJobOptions<A extends unknown[], O extends OptionValues>(command: Command<A, O>) {
  command
    .option('--user <user>', 'who runs the command (root)')
    .option('--cwd <dir>', "where it runs (the user's home)")
    .option('--env <key=value>', 'a variable, as often as needed; KEY alone takes your value of it', collectVariables)
    .option('--timeout <sec>', 'end the command after this time (3600)', parseInteger)
    .option('-i, --stdin', 'pass standard input on, as it comes')
    .option('-t, --tty', 'run the command in a terminal, as ssh does; ~. at the beginning of a line leaves')
    .option('--merge-output', 'print stderr as stdout, in the order in which both were written');
  return command as unknown as Command<A, O & JobOptions>;
}

/** Returns the standard input of this process, which the job will read, if `--stdin` was given. */
export function inputOf({ stdin }: JobOptions): NodeJS.ReadStream | undefined {
  return stdin ? process.stdin : undefined;
}

export function machineUpdateOf(options: LabelOptions): MachineUpdate {
  const { name, metadata, expires, onExpiry } = options;
  const expiresInSec = expires === 'never' ? null : expires;
  return onlyGiven({ name, metadata, expires_in_sec: expiresInSec, on_expiry: onExpiry });
}

/** Replaces the names of the snapshot and the volumes in the options by their ids. Throws as `resolveId` does. */
export async function withSourceIds<T extends MachineOptions>(client: Client, options: T): Promise<T> {
  const snapshot = await resolveGiven(client, 'snapshot', options.snapshot);
  const rootVolume = await resolveGiven(client, 'volume', options.rootVolume);
  const volume = options.volume && (await inTurn(options.volume, (each) => withVolumeId(client, each)));
  return { ...options, ...onlyGiven({ snapshot, rootVolume, volume }) };
}

const withVolumeId = async (client: Client, { volume, path }: BootVolume): Promise<BootVolume> => ({
  volume: await resolveId(client, 'volume', volume),
  path,
});

export function machineCreateOf(options: MachineOptions): MachineCreate {
  return {
    ...machineUpdateOf(options),
    ...onlyGiven({
      vcpus: options.vcpus,
      memory_mb: options.memory,
      rootfs_size_gb: options.rootfs,
      stack: options.stack,
      snapshot_id: options.snapshot,
      root_volume_id: options.rootVolume,
      volumes: options.volume?.map(({ volume, path }) => ({ volume_id: volume, ...onlyGiven({ mount_path: path }) })),
    }),
  };
}

/**
 * Makes the request for a terminal that runs the command. Throws UsageError for an option that works only without a
 * terminal.
 */
export function terminalOf(argv: string[], options: JobOptions, name: string | undefined): TerminalSessionCreate {
  const { user, cwd, env, timeout, mergeOutput } = options;
  const refused = Object.entries({ '--timeout': timeout, '--merge-output': mergeOutput, 'the name of a job': name });
  for (const [option, value] of refused) {
    if (value !== undefined) throw new UsageError(`${option} cannot be used with --tty`);
  }
  return { command: argv, ...onlyGiven({ user, cwd }), env: withTerm(env) };
}

/** Adds TERM, the type of the user's terminal, to the environment of a command, unless it is set there. */
export function withTerm(env: Record<string, string> = {}): Record<string, string> {
  const { TERM } = process.env;
  return TERM ? { TERM, ...env } : env;
}

/** Makes the request for a job with the label `name`. */
export function jobOf(argv: string[], options: JobOptions, name: string | undefined): ExecCreate {
  const { user, cwd, env, timeout, mergeOutput } = options;
  return {
    argv,
    ...onlyGiven({
      name,
      user,
      cwd,
      env,
      timeout_sec: timeout,
      merge_output: mergeOutput,
    }),
  };
}
