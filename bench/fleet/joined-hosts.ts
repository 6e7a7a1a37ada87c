// Fake hosts that have joined: processes of hosts.ts with certificates of the fleet's authority, and their rows.
import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { hostNameOf } from '@sandbar/contract/fleet.ts';
import type { Db } from '@sandbar/control-plane/db/database.ts';
import { CHANNELS, notify } from '@sandbar/control-plane/db/notifications.ts';
import { readAuthorities, unlockAuthority } from '@sandbar/control-plane/fleet/authorities.ts';
import { makeKeys, signCertificate, toPem } from '@sandbar/control-plane/fleet/x509.ts';
import { sql } from 'kysely';
import type { HostsFile } from './hosts.ts';
import { hostIdOf } from './ids.ts';
import { SECRET } from './replicas.ts';

export type JoinedHosts = {
  pid: number;
  /** How many event streams of replicas are open. */
  countStreams(): Promise<number>;
  stop(): Promise<void>;
};

const CERTIFICATE_DAYS = 30;

/** Starts hosts that listen. The control plane does not know them until `insertHosts`. */
export async function startHosts(db: Db, count: number, machinesOfHost: number): Promise<JoinedHosts & Ports> {
  const folder = mkdtempSync(join(tmpdir(), 'sandbar-bench-hosts-'));
  const file = join(folder, 'hosts.json');
  writeFileSync(file, JSON.stringify({ ...(await makeCertificates(db, count)), machinesOfHost } satisfies HostsFile));
  const child: ChildProcess = fork(new URL('./hosts.ts', import.meta.url), [file]);
  const [ports] = (await once(child, 'message')) as [number[]];
  return {
    ports,
    pid: child.pid ?? 0,
    countStreams: async () => {
      child.send('count');
      return ((await once(child, 'message')) as [number])[0];
    },
    stop: async () => {
      child.disconnect();
      await once(child, 'exit');
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

type Ports = { ports: number[] };

async function makeCertificates(db: Db, count: number): Promise<Omit<HostsFile, 'machinesOfHost'>> {
  const { signer, trusted, now } = await readAuthorities(db, SECRET);
  const authority = await unlockAuthority(signer, SECRET);
  const keys = await makeKeys();
  const certificates: string[] = [];
  for (let host = 0; host < count; host++) {
    const holder = { name: hostNameOf(hostIdOf(host)), role: 'server' } as const;
    certificates.push((await signCertificate(authority, keys.publicKey, holder, CERTIFICATE_DAYS, now)).certificate);
  }
  return { key: toPem(keys.privateKey), authority: trusted.join(''), certificates };
}

/** Writes the rows of the hosts, as their joins would, and tells all replicas. */
export async function insertHosts(db: Db, { ports }: Ports): Promise<void> {
  const rows = ports.map((port, host) => ({ id: hostIdOf(host), name: `host-${host}`, address: `127.0.0.1:${port}` }));
  await sql`
    insert into hosts (id, name, address, version, boot_id, isolation, network, subnet, cpus, memory_mb, images,
      certificate_expires_at)
    select id, name, address, '0', 'boot-1', 'kvm', 'user', '10.83.0.0/16', 64, 1048576, '[]',
      now() + ${CERTIFICATE_DAYS} * interval '1 day'
    from jsonb_to_recordset(${JSON.stringify(rows)}::jsonb) as joined (id uuid, name text, address text)`.execute(db);
  await notify(db, CHANNELS.hosts);
  await notify(db, CHANNELS.leases);
}
