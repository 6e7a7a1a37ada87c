// What clients ask about the ports of a machine: which are open, who may use one, and a token for one.

import { ServiceError } from '@sandbar/contract/errors.ts';
import {
  GuestPorts,
  PORT_BOUNDS,
  type Port,
  type PortAccess,
  type PortList,
  type PortToken,
} from '@sandbar/contract/port.ts';
import type { App } from '../app.ts';
import { callGuest } from '../guest/call.ts';
import type { Caller } from '../http/route-config.ts';
import { findMachine } from '../machines/store.ts';
import { previewUrl } from './preview-host.ts';
import { TOKEN_PARAMETER } from './query-token.ts';
import { addPublicPort, listPublicPorts, removePublicPort } from './store.ts';
import { portTokenSecret, writePortToken } from './token.ts';

/**
 * Returns the ports on which programs of a running machine listen, in order. Throws the errors of {@link callGuest}.
 */
export async function listPorts(app: App, caller: Caller, machineId: string, signal: AbortSignal): Promise<PortList> {
  const { ports } = await callGuest(app, caller, machineId, 'ports.list', {}, GuestPorts, { signal });
  const isPublic = new Set(await listPublicPorts(app.db, machineId));
  // A guest may name a port twice.
  const byNumber = new Map(ports.map((entry) => [entry.port, entry]));
  const entries = [...byNumber.values()].sort((one, other) => one.port - other.port);
  return {
    ports: entries.map(({ port, process }) =>
      toPort(app, machineId, port, isPublic.has(port) ? 'public' : 'private', process),
    ),
  };
}

/**
 * Decides who may use a port, whether or not a program listens on it now. Throws `not_found`, and `conflict` when the
 * machine has the most public ports.
 */
export async function setPortAccess(
  app: App,
  { accountId }: Caller,
  machineId: string,
  port: number,
  access: PortAccess,
): Promise<Port> {
  const { id } = await findMachine(app, accountId, machineId);
  if (access === 'private') await removePublicPort(app.db, id, port);
  else if (!(await addPublicPort(app.db, id, port))) {
    throw new ServiceError('conflict', `A machine may have ${PORT_BOUNDS.publicPorts} public ports; make one private.`);
  }
  return toPort(app, id, port, access, null);
}

/** Makes a token that opens one port. Throws `not_found`. */
export async function createPortToken(
  app: App,
  { accountId, via, credentialId }: Caller,
  machineId: string,
  port: number,
  expiresInSec: number = PORT_BOUNDS.tokenSecDefault,
): Promise<PortToken> {
  const { id } = await findMachine(app, accountId, machineId);
  const expiresAt = Date.now() + expiresInSec * 1000;
  const keyId = via === 'key' ? credentialId : undefined;
  const token = writePortToken(
    { machineId: id, port, accountId, keyId, expiresAt },
    portTokenSecret(app.config.secret),
  );
  return {
    token,
    url: `${previewUrl(app.config, id, port)}/?${TOKEN_PARAMETER}=${token}`,
    expires_at: new Date(expiresAt).toISOString(),
  };
}

function toPort(app: App, machineId: string, port: number, access: PortAccess, process: string | null): Port {
  return { port, process, protocol: 'tcp', url: `${previewUrl(app.config, machineId, port)}/`, access };
}
