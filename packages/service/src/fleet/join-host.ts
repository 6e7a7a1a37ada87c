// Makes this computer a host of a fleet: its key and certificate request, the exchange with the control plane, and the
// files of the result. Each step may be repeated with the same token until the files are there.
import { createHash, X509Certificate } from 'node:crypto';
import { existsSync, mkdirSync } from 'node:fs';
import { isIPv6 } from 'node:net';
import { hostname } from 'node:os';
import { type AgentCertificate, DEFAULT_AGENT_PORT, HOST_TOKEN_PATTERN } from '@sandbar/contract/fleet.ts';
import { homePaths } from '@sandbar/contract/home.ts';
import { makeCertificateRequest, makeKey } from '@sandbar/host-agent/fleet/certificate-request.ts';
import { checkCertificate, fitsKey } from '@sandbar/host-agent/fleet/check-certificate.ts';
import {
  type JoinRecord,
  readIdentity,
  readJoinRecord,
  readPendingKey,
  removePendingKey,
  writeIdentity,
  writeJoinRecord,
  writePendingKey,
} from '@sandbar/host-agent/fleet/fleet-files.ts';
import { formatHostAddress, parseHostAddress } from '@sandbar/host-agent/fleet/host-address.ts';
import { loadHostState } from '@sandbar/host-agent/host-state.ts';
import type { ServiceConfig } from '../config.ts';
import { messageOf, Problem } from '../problem.ts';
import { findSupervisor } from '../ready-file.ts';
import { addressTowards, isLocal } from './own-address.ts';
import { sendJoin } from './send-join.ts';

export type JoinRequest = {
  url: string;
  token: string;
  /** HOST:PORT for the control plane. Undefined: the address of the interface towards the URL, and the default port. */
  address: string | undefined;
  /** HOST:PORT on which the agent listens. Undefined: all interfaces, and the port of `address`. */
  listen: string | undefined;
  /** A label for people. Undefined: the host name. */
  name: string | undefined;
  /** Whether a host that has joined may join again. */
  isAgain: boolean;
};

export type Joined = JoinRecord & {
  name: string;
  listen: string;
  validTo: Date;
  /** Whether an agent runs, which does not know the new certificate yet. */
  isRunning: boolean;
};

/** Throws Problem with what to do. */
export async function joinHost(request: JoinRequest, config: ServiceConfig): Promise<Joined> {
  const { home, isRoot, env } = config;
  if (!isRoot) throw new Problem('A host joins as root, because its machines need root: run this command as root');
  if (!new RegExp(HOST_TOKEN_PATTERN).test(request.token))
    throw new Problem('This is no token for a host: it begins with sbh_, and sandbar admin host token makes one');
  const url = parseUrl(request.url);
  assertFree(home, request.isAgain);
  const address = await addressOf(request.address, url);
  const listen = request.listen ?? allInterfaces(address);
  if (parseHostAddress(listen) === undefined) throw badAddress('--listen', listen);
  const name = request.name ?? hostname();

  mkdirSync(home, { recursive: true });
  const { hostId } = loadHostState({ home, subnet: env.SANDBAR_SUBNET || undefined });
  const key = pendingKeyOf(home);
  const issued = await sendJoin(url, {
    token: request.token,
    host_id: hostId,
    name,
    address,
    certificate_request: await makeCertificateRequest(key, hostId),
  });
  const { certificate, authority } = checkAnswer(issued, request.token, key, hostId);
  const record = { url: url.href.replace(/\/$/, ''), address, host_id: hostId, listen };
  writeJoinRecord(home, record);
  // Only the authority that the token names is trusted. Over plain HTTP somebody could have added another one.
  writeIdentity(home, { key, certificate: issued.certificate, authorities: [authority] });
  removePendingKey(home);
  return { ...record, name, validTo: certificate.validToDate, isRunning: findSupervisor(home) !== undefined };
}

function parseUrl(text: string): URL {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (url && ['http:', 'https:'].includes(url.protocol) && url.search === '' && url.hash === '') return url;
  throw new Problem(`--url must be the address of the API, such as https://sandbar.example.com, not "${text}"`);
}

/** Throws Problem when the data directory belongs to a fleet already, or to a service of its own. */
function assertFree(home: string, isAgain: boolean): void {
  const { secret, credentials } = homePaths(home);
  if (existsSync(secret) || existsSync(credentials))
    throw new Problem(`${home} belongs to a service with a control plane of its own: name another SANDBAR_HOME`);
  const joined = readIdentity(home) && readJoinRecord(home);
  if (joined !== undefined && !isAgain)
    throw new Problem(`This host has joined ${joined.url} already (${joined.address}): --again joins once more`);
}

async function addressOf(given: string | undefined, url: URL): Promise<string> {
  // A URL has an IPv6 address in brackets.
  const controlPlane = url.hostname.replace(/^\[|\]$/g, '');
  const address = given ?? formatHostAddress({ host: await findAddress(controlPlane), port: DEFAULT_AGENT_PORT });
  const parsed = parseHostAddress(address);
  if (parsed === undefined) throw badAddress('--address', address);
  // A control plane on this computer reaches a local address too.
  if (!isLocal(parsed.host) || isLocal(controlPlane)) return address;
  throw new Problem(
    `Other computers do not reach this one at ${parsed.host}: name the address at which the control plane does with --address HOST:PORT`,
  );
}

/** Where the agent of a host with this address listens on all interfaces. An IPv6 address stands for IPv4 too. */
function allInterfaces(address: string): string {
  const { host, port } = parseHostAddress(address) ?? { host: '', port: DEFAULT_AGENT_PORT };
  return formatHostAddress({ host: isIPv6(host) ? '::' : '0.0.0.0', port });
}

async function findAddress(controlPlane: string): Promise<string> {
  try {
    return await addressTowards(controlPlane);
  } catch (error) {
    throw new Problem(
      `This computer does not reach ${controlPlane} (${messageOf(error)}): check the URL, the network and the names of hosts`,
    );
  }
}

const badAddress = (option: string, text: string) =>
  new Problem(`${option} must be HOST:PORT, such as 10.0.0.5:${DEFAULT_AGENT_PORT}, not "${text}"`);

/** The key of an earlier attempt, whose answer may have been lost, or a new one. */
function pendingKeyOf(home: string): string {
  const kept = readPendingKey(home);
  if (kept !== undefined) return kept;
  const key = makeKey();
  writePendingKey(home, key);
  return key;
}

/**
 * Returns the certificate, and the authority that the token names, as PEM. Throws Problem unless the answer comes from the
 * control plane that made the token, for this host.
 */
function checkAnswer(
  issued: AgentCertificate,
  token: string,
  key: string,
  hostId: string,
): { certificate: X509Certificate; authority: string } {
  try {
    const certificate = checkCertificate(issued, hostId);
    const authority = issued.authorities.find((pem) => isNamedBy(token, pem));
    if (authority === undefined) throw new Error('its authority is not the one that the token names');
    if (!fitsKey(certificate, key)) throw new Error('the certificate is for another key');
    return { certificate, authority };
  } catch (error) {
    throw new Problem(
      `The answer is not of the control plane that made the token (${messageOf(error)}): check the URL, and that nobody is between this host and it`,
    );
  }
}

function isNamedBy(token: string, authority: string): boolean {
  const digest = createHash('sha256').update(new X509Certificate(authority).raw).digest('hex');
  return digest.startsWith(token.slice(token.indexOf('.') + 1));
}
