// The host names at which ports of machines are reached: `<port>-<machine id>.<preview domain>`. They decide, before
// any route, whether a request is for the API or for a machine.
import type { Config } from '../config.ts';

/** `api`: not one of our preview names. `unknown`: such a name that can belong to no machine. */
export type Destination = { kind: 'api' } | { kind: 'unknown' } | { kind: 'port'; port: number; machineId: string };

const API: Destination = { kind: 'api' };
const UNKNOWN: Destination = { kind: 'unknown' };
/** The label before the preview domain belongs to a preview when it begins like this. */
const PREVIEW_LABEL = /^\d+-/;
const WHOLE_NAME = /^([1-9]\d{0,4})-([0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12})$/;

/**
 * Returns where a request with this `Host` header belongs, whatever port the header has. Names below a preview name are
 * `unknown`, so that the API never answers at a name that a page of a machine could have.
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

/** Returns the address of a port without a slash at its end, with the scheme and port of the service's public address. */
export function previewUrl({ previewDomain, auth }: Config, machineId: string, port: number): string {
  const { protocol, port: publicPort } = new URL(auth.publicUrl);
  return `${protocol}//${port}-${machineId}.${previewDomain}${publicPort === '' ? '' : `:${publicPort}`}`;
}
