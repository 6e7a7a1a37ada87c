// Adds `execs.output_expired` (the host has dropped the job's output), the disk sizes of hosts, and the vCPUs and disk
// space that are reserved on each host. Until its agent reports its disk, a host has no room.
import { type Kysely, sql } from 'kysely';

export async function up(db: Kysely<unknown>): Promise<void> {
  await sql`alter table execs add column output_expired boolean not null default false`.execute(db);
  await sql`
    alter table hosts
      add column disk_mb bigint not null default 0,
      add column disk_free_mb bigint not null default 0,
      add column disk_reserve_mb bigint not null default 0,
      add column reserved_vcpus integer not null default 0 check (reserved_vcpus >= 0),
      add column reserved_disk_gb integer not null default 0 check (reserved_disk_gb >= 0)`.execute(db);
  await sql`
    update hosts set
      reserved_vcpus = (
        select coalesce(sum(vcpus), 0) from machines
        where host_id = hosts.id and state in ('provisioning', 'running')),
      reserved_disk_gb =
        (select coalesce(sum(rootfs_size_gb), 0) from machines where host_id = hosts.id and state <> 'destroyed') +
        (select coalesce(sum(size_gb), 0) from volumes where host_id = hosts.id and state <> 'taken')`.execute(db);
}
