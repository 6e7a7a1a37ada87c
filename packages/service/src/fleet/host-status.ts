// Looks whether this computer is a host of a fleet, and whether its agent runs.
import { X509Certificate } from 'node:crypto';
import { homePaths } from '@sandbar/contract/home.ts';
import { readIdentity, readJoinRecord } from '@sandbar/host-agent/fleet/fleet-files.ts';
import type { ServiceConfig } from '../config.ts';
import { Problem } from '../problem.ts';
import { readPidFile } from '../supervise/pid-file.ts';
import { isAlive } from '../supervise/process-identity.ts';

export type HostStatus = {
  /** Whether the host has joined, its certificate is valid, and its agent runs. */
  healthy: boolean;
  /** A sentence for each fault. */
  problems: string[];
  home: string;
  /** Null when the host has not joined a fleet. */
  fleet: { url: string; host_id: string; address: string; listen: string | null; certificate_until: string } | null;
  agent_pid: number | null;
};

/** Throws Problem when the caller is not root, who alone may read the files. */
export function readHostStatus({ home, isRoot }: ServiceConfig): HostStatus {
  if (!isRoot) throw new Problem('Only root can read the files of the fleet: run this command as root');
  const identity = readIdentity(home);
  const record = readJoinRecord(home);
  const agent = readPidFile(homePaths(home).pidFile('host-agent'));
  const isRunning = agent !== undefined && isAlive(agent);
  const until = identity && new X509Certificate(identity.certificate).validToDate;
  const problems = [
    ...(until === undefined ? ['This host has not joined a fleet: sandbar host join'] : []),
    ...(until !== undefined && until.getTime() < Date.now()
      ? ['The certificate has expired: sandbar host join --again']
      : []),
    ...(isRunning ? [] : ['The agent does not run: sandbar host run']),
  ];
  const fleet =
    until === undefined || record === undefined
      ? null
      : {
          url: record.url,
          host_id: record.host_id,
          address: record.address,
          listen: record.listen ?? null,
          certificate_until: until.toISOString(),
        };
  return { healthy: problems.length === 0, problems, home, fleet, agent_pid: isRunning ? agent.pid : null };
}
