// Adds the table of operations. Until now, columns of machines, volumes and snapshots described unfinished changes;
// this migration converts each of them to a row of the new table. Addresses of machines may now be null, because the
// host assigns them when it starts a machine.
import { type Kysely, sql } from 'kysely';

export async function up(db: Kysely<unknown>): Promise<void> {
  await sql`
    create table operations (
      id uuid primary key default gen_random_uuid(),
      account_id uuid not null references accounts (id),
      host_id uuid not null references hosts (id),
      machine_id uuid references machines (id) on delete cascade,
      volume_id uuid,
      snapshot_id uuid,
      kind text not null,
      args jsonb not null default '{}',
      actor text not null,
      undoing boolean not null default false,
      claim_token uuid,
      claim_expires_at timestamptz,
      attempts integer not null default 0,
      last_error text,
      error_code text,
      run_at timestamptz(3) not null default now(),
      created_at timestamptz(3) not null default now(),
      finished_at timestamptz(3)
    )`.execute(db);
  // Each machine, volume and snapshot has at most one unfinished operation. The expiry of a machine is not counted.
  await sql`
    create unique index operations_machine on operations (machine_id)
    where finished_at is null and kind <> 'expire'`.execute(db);
  await sql`
    create unique index operations_expiry on operations (machine_id)
    where finished_at is null and kind = 'expire'`.execute(db);
  await sql`
    create unique index operations_volume on operations (volume_id)
    where finished_at is null and volume_id is not null`.execute(db);
  await sql`
    create unique index operations_snapshot on operations (snapshot_id)
    where finished_at is null and snapshot_id is not null`.execute(db);
  await sql`create index operations_due on operations (run_at) where finished_at is null`.execute(db);
  await sql`create index operations_finished on operations (finished_at) where finished_at is not null`.execute(db);
  await moveIntents(db);
  await dropIntents(db);
}

/**
 * Inserts an operation for each change that the older version left unfinished. The operation finishes the change in the
 * way in which the older version would have.
 */
async function moveIntents(db: Kysely<unknown>): Promise<void> {
  await sql`
    insert into operations (account_id, host_id, machine_id, volume_id, snapshot_id, kind, args, actor, undoing)
    select account_id, host_id, id,
      case when started_at is null and desired in ('running', 'discarded') then root_volume_id end,
      restoring_snapshot_id,
      case
        when desired = 'destroyed' then 'destroy'
        when desired = 'discarded' then 'create'
        when restoring_snapshot_id is not null then 'restore'
        when desired = 'stopped' and state = 'provisioning' then 'start'
        when desired = 'stopped' then 'stop'
        when started_at is null then 'create'
        else 'start'
      end,
      case when desired = 'destroyed' then jsonb_strip_nulls(
        jsonb_build_object('keep_volume_id', keep_volume_id, 'snapshots_deleted', snapshots_deleted)) else '{}' end,
      desired_by,
      desired = 'discarded' or (desired = 'stopped' and state = 'provisioning')
    from machines
    where state <> 'destroyed'
      and (desired in ('destroyed', 'discarded')
        or (state <> 'error' and (state <> desired or restoring_snapshot_id is not null)))`.execute(db);
  // If the older version was undoing an attach or a detach, its operation here continues the undo. A machine can have
  // only one unfinished operation: if it has one already, the volume gets none, and its unfinished change is dropped.
  await sql`
    insert into operations (account_id, host_id, machine_id, volume_id, kind, args, actor, undoing)
    select volumes.account_id, volumes.host_id, volumes.machine_id, volumes.id,
      case when (volumes.state = 'available') then 'attach' else 'detach' end,
      case when volumes.state = 'available' then jsonb_build_object('mount_path', mount_path) else '{}' end, 'user',
      (volumes.state = 'available') = (change = 'detaching')
    from volumes
    where change in ('attaching', 'detaching')
      and not exists (select from operations where operations.machine_id = volumes.machine_id)`.execute(db);
  await sql`
    insert into operations (account_id, host_id, volume_id, kind, actor, undoing)
    select account_id, host_id, id, case when deleting then 'delete_volume' else 'create_volume' end, 'user', not deleting
    from volumes where deleting or change = 'creating'`.execute(db);
  await sql`
    insert into operations (account_id, host_id, snapshot_id, kind, actor, undoing)
    select account_id, host_id, id, case change when 'creating' then 'snapshot' else 'delete_snapshot' end, 'user',
      change = 'creating'
    from snapshots where change is not null`.execute(db);
}

async function dropIntents(db: Kysely<unknown>): Promise<void> {
  // A destroyed machine whose root disk was kept as a volume: `root_volume_id` names that volume from now on.
  await sql`update machines set root_volume_id = keep_volume_id where state = 'destroyed'`.execute(db);
  await sql`drop index machines_address, machines_restoring`.execute(db);
  await sql`
    alter table machines
      drop column desired, drop column desired_by, drop column keep_volume_id, drop column restoring_snapshot_id,
      drop column snapshots_deleted, drop column claim_token, drop column claim_expires_at,
      alter column private_ip drop not null,
      add column env jsonb not null default '{}',
      add column on_expiry text not null default 'destroy' check (on_expiry in ('stop', 'destroy'))`.execute(db);
  await sql`alter table hosts drop column address_counter`.execute(db);
  await sql`alter table execs add column name text not null default ''`.execute(db);
  await sql`drop index volumes_deleting, volumes_changing, volumes_mount, snapshots_changing`.execute(db);
  await sql`alter table volumes drop constraint volumes_state_check`.execute(db);
  await sql`
    update volumes set
      change = null,
      state = case
        when deleting then 'deleting' when change = 'creating' then 'creating' when change = 'taking' then 'taken'
        else state end,
      machine_id = case when change in ('attaching', 'detaching') and state = 'available' then null else machine_id end,
      mount_path = case when change in ('attaching', 'detaching') and state = 'available' then null else mount_path end
    where deleting or change is not null`.execute(db);
  await sql`
    alter table volumes
      drop column change, drop column deleting, drop column claim_token, drop column claim_expires_at,
      add constraint volumes_state_check
        check (state in ('creating', 'available', 'attached', 'taken', 'deleting', 'error'))`.execute(db);
  // At most one volume at each mount path of a machine.
  await sql`
    create unique index volumes_mount on volumes (machine_id, mount_path) where machine_id is not null`.execute(db);
  await sql`alter table snapshots drop constraint snapshots_state_check`.execute(db);
  // A snapshot that was being created has no operation here if its machine is being deleted; then the delete of the
  // machine removes it.
  await sql`update snapshots set state = change where change is not null`.execute(db);
  await sql`
    alter table snapshots
      drop column change,
      add constraint snapshots_state_check check (state in ('creating', 'ready', 'deleting', 'error'))`.execute(db);
}
