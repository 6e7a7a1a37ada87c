import 'reflect-metadata';
// A joined host on the loopback interface: TLS with certificates on both sides, in front of an agent that listens on a
// Unix socket.
import { once } from 'node:events';
import { type AddressInfo, connect, type Socket } from 'node:net';
import { createServer, type TlsOptions } from 'node:tls';
import { Pkcs10CertificateRequestGenerator } from '@peculiar/x509';
import { hostNameOf } from '@sandbar/contract/fleet.ts';
import { makeAuthority, makeKeys, type SigningAuthority, signCertificate, toPem } from '../../src/fleet/x509.ts';

export type Identity = { key: string; certificate: string; authorities: string[] };

/** Makes an authority that no database has. */
export async function makeTestAuthority(name: string): Promise<SigningAuthority> {
  const keys = await makeKeys();
  return { certificate: await makeAuthority(name, keys, new Date()), key: keys.privateKey };
}

/** Makes what a host has after it joined. `now`: when its certificate, for 30 days, was signed. */
export async function makeIdentity(authority: SigningAuthority, hostId: string, now = new Date()): Promise<Identity> {
  const keys = await makeKeys();
  const holder = { name: hostNameOf(hostId), role: 'server' } as const;
  const { certificate } = await signCertificate(authority, keys.publicKey, holder, 30, now);
  return { key: toPem(keys.privateKey), certificate, authorities: [authority.certificate] };
}

/** Makes a key and a request for its certificate, both PEM, with a name that the control plane must ignore. */
export async function makeRequest(): Promise<{ key: string; request: string }> {
  const keys = await makeKeys();
  const request = await Pkcs10CertificateRequestGenerator.create({
    name: 'CN=control-plane',
    keys,
    signingAlgorithm: { name: 'ECDSA', hash: 'SHA-256' },
  });
  return { key: toPem(keys.privateKey), request: request.toString('pem') };
}

export type TlsAgent = {
  port: number;
  /** New connections use another identity. */
  use(identity: Identity): void;
  /** The names of the peers that were let in. */
  peers: (string | undefined)[];
  close(): void;
};

const optionsOf = ({ key, certificate, authorities }: Identity): TlsOptions => ({
  key,
  cert: certificate,
  ca: authorities,
  minVersion: 'TLSv1.3',
  requestCert: true,
  rejectUnauthorized: true,
});

/** Passes the bytes of each connection to the agent at `socketPath`, and each end and each break in both directions. */
export async function serveTls(identity: Identity, socketPath: string): Promise<TlsAgent> {
  const open = new Set<Socket>();
  const peers: (string | undefined)[] = [];
  // The types of Node leave this option of its TCP server out.
  const options = { ...optionsOf(identity), allowHalfOpen: true };
  const server = createServer(options, (socket) => {
    peers.push(socket.getPeerX509Certificate()?.subjectAltName);
    const agent = connect({ path: socketPath, allowHalfOpen: true });
    open.add(socket).add(agent);
    for (const [from, to] of [
      [socket, agent],
      [agent, socket],
    ] as const) {
      from.on('error', () => to.destroy());
      from.on('close', () => to.destroy());
      from.pipe(to);
    }
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    port: (server.address() as AddressInfo).port,
    use: (next) => server.setSecureContext(optionsOf(next)),
    peers,
    close: () => {
      server.close();
      for (const socket of open) socket.destroy();
    },
  };
}
