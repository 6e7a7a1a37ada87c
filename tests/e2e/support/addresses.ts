// Makes the host agent give out a certain address, for example one that was used before. By itself, the agent would
// give out all other addresses of the subnet first, and a test cannot wait for that.
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { homePaths } from '@sandbar/contract/home.ts';
import { createHostClient } from '@sandbar/control-plane/hosts/client.ts';
import { restart } from './host.ts';
import { HOME, pidOf } from './service.ts';

/** The first four addresses of a subnet are never given to a machine (host-agent/src/network/addresses.ts). */
const FIRST = 4;

/**
 * Restarts the host agent so that it leases `address` next, or the next free address if a machine has it. The address
 * goes to the next clone in the pool or to the next machine, whichever is made first. It must be in the host's /16. The
 * restart is needed because the agent reads its counter only when it starts.
 */
export async function takeAddressNext(address: string): Promise<void> {
  const [, , third = 0, fourth = 0] = address.split('.').map(Number);
  const next = third * 256 + fourth - FIRST;
  // A stopped process cannot overwrite the file.
  process.kill(pidOf('host-agent'), 'SIGSTOP');
  writeFileSync(join(HOME, 'addresses.json'), JSON.stringify({ next }));
  await restart(['host-agent'], 'SIGKILL');
}

export type HostMachine = {
  id: string;
  startJob(argv: string[]): Promise<string>;
  /** Runs a command and resolves with its exit code. */
  exitCodeOf(argv: string[]): Promise<number | null>;
  destroy(): Promise<void>;
};

/**
 * Creates a small machine with a free `address` of the host's subnet. Only the host API lets a caller name the address,
 * so the control plane does not know the machine.
 */
export async function createAt(address: string): Promise<HostMachine> {
  const host = createHostClient({ socketPath: homePaths(HOME).hostAgentSocket });
  const id = randomUUID();
  const generation = 1;
  const spec = { vcpus: 1, memory_mb: 256, rootfs_size_gb: 2, stack: 'base', private_ip: address, hostname: 'named' };
  const report = await host.ensureMachine(id, { generation, desired: 'running', spec }, 60_000);
  assert.equal(report.private_ip, address);

  const startJob = async (argv: string[]) => {
    const { job_id } = await host.startJob(id, randomUUID(), { argv, timeout_sec: 60, generation });
    return job_id;
  };
  return {
    id,
    startJob,
    exitCodeOf: async (argv) => {
      const jobId = await startJob(argv);
      const job = await host.getJob(id, jobId, 30_000);
      assert.equal(job?.status, 'exited');
      return job.exit_code;
    },
    destroy: async () => {
      await host.deleteMachine(id, generation);
      host.close();
    },
  };
}
