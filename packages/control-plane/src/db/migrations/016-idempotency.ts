// Lets an idempotency key belong to a volume or a snapshot instead of a machine. These columns have no foreign key: the
// row of a volume or snapshot is deleted when a client deletes it, but its key must stay, or a late retry of the create
// would create a second object. An older replica still inserts keys of machines.
import { type Kysely, sql } from 'kysely';

export async function up(db: Kysely<unknown>): Promise<void> {
  await sql`
    alter table idempotency_keys
      alter column machine_id drop not null,
      add column volume_id uuid,
      add column snapshot_id uuid,
      add constraint idempotency_keys_object check (num_nonnulls(machine_id, volume_id, snapshot_id) = 1)`.execute(db);
  // To delete the key of a create that failed.
  await sql`create index idempotency_keys_volume on idempotency_keys (volume_id) where volume_id is not null`.execute(
    db,
  );
  await sql`
    create index idempotency_keys_snapshot on idempotency_keys (snapshot_id) where snapshot_id is not null`.execute(db);
}
