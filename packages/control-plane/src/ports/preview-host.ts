// The host names at which ports of machines are reached: `<port>-<machine id>.<preview domain>`. They decide, before
// any route, whether a request is for the API or for a machine.
import type { Config } from '../config.ts';

/** `api`: the host name is not that of a port. `unknown`: it looks like that of a port, but no machine can have it. */
export type Destination = { kind: 'api' } | { kind: 'unknown' } | { kind: 'port'; port: number; machineId: string };

const API: Destination = { kind: 'api' };
const UNKNOWN: Destination = { kind: 'unknown' };
/** A host name is for a port when the label before the preview domain begins like this. */
const PREVIEW_LABEL = /^\d+-/;
const WHOLE_NAME = /^([1-9]\d{0,4})-([0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12})$/;

/**
 * Returns the destination of a request with this `Host` header, and ignores the port number in the header. A name below
 * the host name of a port is `unknown`, so that the API never answers at a name that may belong to a page of a machine.
 */
export function destinationOf(host: string | undefined, previewDomain: string): Destination {
  // Names are compared without case, and may end with the dot of the root domain.
  const name = (host ?? '').toLowerCase().replace(/:\d*$/, '').replace(/\.$/, '');
  if (!name.endsWith(`.${previewDomain}`)) return API;
  const rest = name.slice(0, -previewDomain.length - 1);
  if (!PREVIEW_LABEL.test(rest.slice(rest.lastIndexOf('.') + 1))) return API;
  const [, digits, machineId] = WHOLE_NAME.exec(rest) ?? [];
  const port = Number(digits);
  return machineId !== undefined && port <= 65_535 ? { kind: 'port', port, machineId } : UNKNOWN;
}

/**
 * Returns the URL of a port, with the scheme and port of the service's public address and without a slash at its end.
 */
export function previewUrl({ previewDomain, auth }: Config, machineId: string, port: number): string {
  const { protocol, port: publicPort } = new URL(auth.publicUrl);
  return `${protocol}//${port}-${machineId}.${previewDomain}${publicPort === '' ? '' : `:${publicPort}`}`;
}
