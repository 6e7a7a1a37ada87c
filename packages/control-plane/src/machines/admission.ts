// The first transaction of a create, as one statement: the charge, the host's memory, an address, the row and the
// idempotency key, or nothing of it. It locks the account and then the host, and only what it reads from then on, of the
// locked rows, decides.
import type { App } from '../app.ts';
import { isUniqueViolation } from '../db/database.ts';
import { prepare } from '../db/prepared.ts';
import type { HostRow, MachineRow } from '../db/tables.ts';
import { addressInSql } from '../hosts/addresses.ts';
import { chargeInSql, fitsInSql } from '../quotas/charge.ts';
import { ACCOUNT_QUOTA_COLUMNS, type LimitColumns, type UseColumns } from '../quotas/limits.ts';
import type { CreateRequest, IdempotencyKey } from './admit.ts';
import { MACHINE_COLUMNS } from './columns.ts';

export type Admission = {
  id: string;
  accountId: string;
  host: HostRow;
  request: CreateRequest;
  token: string;
  idempotencyKey: IdempotencyKey | undefined;
};

/** A free address, or how many to pass over from the host's counter on. */
export type AddressChoice = { skip: number } | { address: string };

/** What became of it; `refused` is for the account's or the host's lack of room, with the account as it was. */
export type Outcome =
  | { kind: 'admitted'; machine: MachineRow }
  | { kind: 'refused'; account: LimitColumns & UseColumns }
  | { kind: 'address taken' }
  | { kind: 'key taken' };

type Answer = LimitColumns & UseColumns & { [Column in keyof MachineRow]: MachineRow[Column] | null };

const AMOUNTS = { machines: '1', vcpus: '$5::int', memory_mb: '$6::int', storage_gb: '$7::int' };

const KEY_PART = `, key_taken as (
    insert into idempotency_keys (account_id, key, fingerprint, machine_id)
    select fit.account_id, $15, $16, $3 from fit
  )`;

/** A key conflict, like an address conflict, is an error of the statement, which undoes the rest of it. */
const admitting = (withKey: boolean): string => `
  with account as materialized (
    select id, tier, ${ACCOUNT_QUOTA_COLUMNS} from accounts where id = $1 for no key update
  ), place as materialized (
    select hosts.id, subnet, memory_mb, reserved_memory_mb, address_counter, isolation, draining
    from hosts, account where hosts.id = $2 for no key update of hosts
  ), fit as materialized (
    select account.id as account_id, place.id as host_id, place.isolation,
      coalesce($12::text, ${addressInSql('place.subnet', 'place.address_counter + 1 + $13::int')}) as address
    from account, place
    where not place.draining and place.reserved_memory_mb + $6::int <= place.memory_mb * $14::float8
      and ${fitsInSql('account', AMOUNTS)}
  ), charged as (
    update accounts set ${chargeInSql(AMOUNTS)} from fit where accounts.id = fit.account_id
  ), reserved as (
    update hosts
    set reserved_memory_mb = hosts.reserved_memory_mb + $6::int,
      address_counter = (hosts.address_counter + 1 + $13::int) % 1000000000
    from fit where hosts.id = fit.host_id
  ), machine as (
    insert into machines (id, account_id, host_id, name, state, desired, generation, vcpus, memory_mb, rootfs_size_gb,
      stack, private_ip, metadata, isolation, claim_token, claim_expires_at)
    select $3, fit.account_id, fit.host_id, $4, 'provisioning', 'running', 1, $5::int, $6::int, $7::int,
      $8, fit.address, $9::jsonb, fit.isolation, $10::uuid, now() + $11::int * interval '1 millisecond'
    from fit
    returning ${MACHINE_COLUMNS}
  )${withKey ? KEY_PART : ''}
  select tier, ${ACCOUNT_QUOTA_COLUMNS}, machine.* from account left join machine on true`;

const admit = prepare<Answer>('admit_machine', admitting(false));
const admitWithKey = prepare<Answer>('admit_machine_with_key', admitting(true));

/** Tries to admit a machine to one host with one address. */
export async function tryToAdmit(app: App, admission: Admission, choice: AddressChoice): Promise<Outcome> {
  const { id, accountId, host, request, token, idempotencyKey } = admission;
  const values = [
    ...[accountId, host.id, id, request.name, request.vcpus, request.memory_mb, request.rootfs_size_gb, request.stack],
    ...[JSON.stringify(request.metadata), token, app.config.timing.claimTtlMs],
    ...('skip' in choice ? [null, choice.skip] : [choice.address, 0]),
    app.config.memoryOvercommit,
  ];
  try {
    const [answer] = idempotencyKey
      ? await admitWithKey(app.db, [...values, idempotencyKey.key, idempotencyKey.fingerprint])
      : await admit(app.db, values);
    if (!answer) throw new Error('the account or the host went during a create');
    return isAdmitted(answer) ? { kind: 'admitted', machine: answer } : { kind: 'refused', account: answer };
  } catch (error) {
    if (isUniqueViolation(error, 'machines_address')) return { kind: 'address taken' };
    if (isUniqueViolation(error, 'idempotency_keys_pkey')) return { kind: 'key taken' };
    throw error;
  }
}

const isAdmitted = (answer: Answer): answer is Answer & MachineRow => answer.id !== null;
