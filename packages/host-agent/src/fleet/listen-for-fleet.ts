// Lets the agent of a joined host listen for the control plane.
import { X509Certificate } from 'node:crypto';
import type { Server } from 'node:http';
import { DEFAULT_AGENT_PORT } from '@sandbar/contract/fleet.ts';
import type { HostAgentConfig } from '../config.ts';
import { readJoinRecord } from './fleet-files.ts';
import { FleetListener } from './fleet-listener.ts';
import type { FleetMember } from './fleet-member.ts';
import { formatHostAddress, parseHostAddress } from './host-address.ts';

const DEFAULT_LISTEN = { host: '0.0.0.0', port: DEFAULT_AGENT_PORT };

type Log = { warn(details: object, message: string): void; info(details: object, message: string): void };

/** Returns undefined when the host has not joined a fleet. Throws `validation_error` when the agent cannot listen. */
export async function listenForFleet(
  { home, agentListen }: Pick<HostAgentConfig, 'home' | 'agentListen'>,
  member: FleetMember | undefined,
  http: Server,
  log: Log,
): Promise<FleetListener | undefined> {
  if (member === undefined) return undefined;
  const { validTo, validToDate } = new X509Certificate(member.identity.certificate);
  if (validToDate.getTime() < Date.now())
    log.warn({ validTo }, 'the certificate of this host has expired: run sandbar host join --again with a new token');
  const listener = new FleetListener(member.identity, http, log);
  const told = parseHostAddress(readJoinRecord(home)?.listen ?? '');
  const address = await listener.listen(agentListen ?? told ?? DEFAULT_LISTEN);
  member.onRenewed = (identity) => {
    listener.use(identity);
    log.info({ validTo: new X509Certificate(identity.certificate).validTo }, 'this host has a new certificate');
  };
  log.info({ address: formatHostAddress(address), validTo }, 'listening for the control plane of the fleet');
  return listener;
}
