// Opens a connection to a port of a machine, through its host.
import type { Duplex } from 'node:stream';
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { App } from '../app.ts';
import { toGuestRefusal } from '../guest/answer.ts';
import type { PortTarget } from './connections.ts';

/** How long a connection may take. The host gives up after 10 s, so this ends the wait for a host that hangs. */
const CONNECT_MS = 12_000;

/**
 * Opens a connection. It may serve several requests, so the caller checks and counts these. The connection ends with
 * the machine, with the host, and when the service stops. Throws `port_not_open`, `conflict` for a machine that does
 * not run, and `host_unavailable`.
 */
export async function openPort(app: App, { hostId, machineId, port }: PortTarget): Promise<Duplex> {
  const limit = new AbortController();
  const late = () => limit.abort(new ServiceError('port_not_open', `Port ${port} did not answer in time.`));
  const timer = setTimeout(late, CONNECT_MS);
  try {
    const signal = AbortSignal.any([app.cutoff, limit.signal]);
    return await app.hosts.client(hostId).connectPort(machineId, port, signal);
  } catch (error) {
    throw toGuestRefusal(limit.signal.aborted ? limit.signal.reason : error, 'ports.connect');
  } finally {
    clearTimeout(timer);
  }
}
