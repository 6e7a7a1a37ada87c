// A joined host in a temporary folder, whose HTTP server the control plane reaches over TLS on the loopback interface.
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import type { Server } from 'node:http';
import { Agent as HttpsAgent } from 'node:https';
import { connect as connectTcp, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { type ConnectionOptions, connect as connectTls, type TLSSocket } from 'node:tls';
import { CONTROL_PLANE_NAME, hostNameOf } from '@sandbar/contract/fleet.ts';
import { makeCertificateRequest, makeKey } from '../../src/fleet/certificate-request.ts';
import { writeIdentity } from '../../src/fleet/fleet-files.ts';
import { FleetListener } from '../../src/fleet/fleet-listener.ts';
import { FleetMember } from '../../src/fleet/fleet-member.ts';
import { type Pair, TestAuthority } from './authority.ts';

export const HOST_ID = '019a0000-0000-7000-8000-0000000000aa';
export const HOST_NAME = hostNameOf(HOST_ID);

/** Makes a data directory of a host that has joined. */
export async function joinedHome(authority: TestAuthority): Promise<string> {
  const home = mkdtempSync(join(tmpdir(), 'sandbar-fleet-'));
  const key = makeKey();
  writeIdentity(home, { key, ...(await authority.sign(await makeCertificateRequest(key, HOST_ID), [HOST_NAME])) });
  return home;
}

export class FleetHost {
  readonly authority: TestAuthority;
  readonly home: string;
  readonly member: FleetMember;
  readonly warnings: string[] = [];
  /** What the control plane proves itself with. */
  readonly controlPlane: Pair;
  #listener: FleetListener | undefined;
  #port = 0;

  private constructor(authority: TestAuthority, home: string, controlPlane: Pair) {
    this.authority = authority;
    this.home = home;
    this.controlPlane = controlPlane;
    const member = FleetMember.open(home, HOST_ID);
    if (member === undefined) throw new Error('the host has not joined');
    this.member = member;
  }

  static async join(): Promise<FleetHost> {
    const authority = await TestAuthority.make();
    return new FleetHost(authority, await joinedHome(authority), await authority.pair(CONTROL_PLANE_NAME));
  }

  get port(): number {
    return this.#port;
  }

  /** Lets the server take connections of the control plane. */
  async listen(http: Server): Promise<void> {
    const warn = (details: object, message: string) => this.warnings.push(`${message} ${JSON.stringify(details)}`);
    const listener = new FleetListener(this.member.identity, http, { warn });
    this.member.onRenewed = (identity) => listener.use(identity);
    this.#port = (await listener.listen({ host: '127.0.0.1', port: 0 })).port;
    this.#listener = listener;
  }

  /** Connects like the control plane, with other options where the test gives them. Rejects when it is refused. */
  async connect(options: ConnectionOptions = {}): Promise<TLSSocket> {
    const socket = connectTls(this.options(options));
    await once(socket, 'secureConnect');
    return socket;
  }

  /** Sends a request on a connection of its own. Resolves with the answer, and rejects when there is none. */
  async ask(options: ConnectionOptions = {}): Promise<string> {
    return FleetHost.askOn(await this.connect(options));
  }

  /** Sends a request on an open connection, like {@link ask}. */
  static async askOn(socket: TLSSocket): Promise<string> {
    socket.write('GET / HTTP/1.1\r\nHost: host\r\nConnection: close\r\n\r\n');
    const answer = await text(socket);
    if (answer === '') throw new Error('the connection was closed without an answer');
    return answer;
  }

  options(options: ConnectionOptions = {}) {
    const { port, authority, controlPlane } = this;
    const checkServerIdentity = () => undefined;
    return { host: '127.0.0.1', port, ca: authority.pem, checkServerIdentity, ...controlPlane, ...options };
  }

  /** Connections of the control plane for node's HTTP client. Each is used for one request. */
  agent(): HttpsAgent {
    return new HttpsAgent({ keepAlive: false, ...this.options() });
  }

  /** A connection like {@link connect}, with the TCP connection below. */
  async connectOnTcp(): Promise<{ secure: TLSSocket; tcp: Socket }> {
    const tcp = connectTcp(this.port, '127.0.0.1');
    const secure = await this.connect({ socket: tcp });
    return { secure, tcp };
  }

  async close(): Promise<void> {
    await this.#listener?.close();
    rmSync(this.home, { recursive: true, force: true });
  }
}
