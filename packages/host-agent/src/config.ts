// What the host agent reads from its environment, checked once at the start.
import { availableParallelism } from 'node:os';
import { ServiceError } from '@sandbar/contract/errors.ts';
import { EXEC_BOUNDS } from '@sandbar/contract/exec.ts';
import { defaultCache, defaultHome } from '@sandbar/contract/home.ts';
import { parseRanges } from './network/subnet.ts';

export type AcceleratorChoice = 'auto' | 'kvm' | 'tcg';

export type HostAgentConfig = {
  home: string;
  cacheDir: string;
  /** Whether taps, a bridge and NAT can be made; otherwise machines use QEMU's user networking. */
  isRoot: boolean;
  /** Group that may open the agent's socket, besides its owner. */
  serviceGid: number | undefined;
  accelerator: AcceleratorChoice;
  qemuPath: string;
  /** CIDR for machines; undefined: one is chosen once and kept. */
  subnet: string | undefined;
  /** Name servers for machines; undefined: those of the host. */
  nameServers: readonly string[] | undefined;
  /** CIDR ranges that machines may reach though they are private. */
  networkAllow: readonly string[];
  /** Megabits a second that a machine may send, and as much receive; undefined: no limit. */
  networkRateMbit: number | undefined;
  /** Output kept of each stream of a job, bytes. */
  outputLimitBytes: number;
  /** Cold boots at once; as many as there are cores finish soonest. */
  concurrentBoots: number;
};

/**
 * Reads the configuration. Throws `validation_error` naming the variable and what it allows.
 */
export function readConfig(env: NodeJS.ProcessEnv, uid: number): HostAgentConfig {
  const isRoot = uid === 0;
  return {
    home: defaultHome(env, isRoot),
    cacheDir: defaultCache(env, isRoot),
    isRoot,
    serviceGid: env.SANDBAR_SERVICE_GID ? integer(env, 'SANDBAR_SERVICE_GID', 0, 0) : undefined,
    accelerator: choice(env, 'SANDBAR_ACCELERATOR', ['auto', 'kvm', 'tcg'] as const, 'auto'),
    qemuPath: env.SANDBAR_QEMU || 'qemu-system-x86_64',
    subnet: env.SANDBAR_SUBNET || undefined,
    nameServers: env.SANDBAR_NAME_SERVERS?.split(',').map((address) => address.trim()),
    networkAllow: parseRanges(env.SANDBAR_NETWORK_ALLOW ?? ''),
    networkRateMbit: env.SANDBAR_NETWORK_RATE_MBIT ? integer(env, 'SANDBAR_NETWORK_RATE_MBIT', 1, 1) : undefined,
    outputLimitBytes: integer(env, 'SANDBAR_OUTPUT_LIMIT_BYTES', EXEC_BOUNDS.outputBytesDefault, 1),
    concurrentBoots: integer(env, 'SANDBAR_CONCURRENT_BOOTS', availableParallelism(), 1),
  };
}

function integer(env: NodeJS.ProcessEnv, name: string, fallback: number, minimum: number): number {
  const text = env[name];
  if (text === undefined || text === '') return fallback;
  const value = Number(text);
  if (Number.isInteger(value) && value >= minimum) return value;
  throw new ServiceError('validation_error', `${name} must be an integer of at least ${minimum}, not "${text}"`);
}

function choice<const T extends readonly string[]>(
  env: NodeJS.ProcessEnv,
  name: string,
  values: T,
  fallback: T[number],
): T[number] {
  const text = env[name] || fallback;
  const found = values.find((value) => value === text);
  if (found !== undefined) return found;
  throw new ServiceError('validation_error', `${name} must be one of ${values.join(', ')}, not "${text}"`);
}
