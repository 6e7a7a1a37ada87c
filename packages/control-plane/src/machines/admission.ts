// The first transaction of a create, as one statement: the charge, the host's memory, an address, the row and the
// idempotency key, or nothing of it. It locks the root volume that it takes, the account and then the host, and only what
// it reads from then on, of the locked rows, decides.
import type { App } from '../app.ts';
import { isUniqueViolation } from '../db/database.ts';
import { prepare } from '../db/prepared.ts';
import type { HostRow, MachineRow } from '../db/tables.ts';
import { addressInSql } from '../hosts/addresses.ts';
import { chargeInSql, fitsInSql } from '../quotas/charge.ts';
import { ACCOUNT_QUOTA_COLUMNS, type LimitColumns, type UseColumns } from '../quotas/limits.ts';
import type { IdempotencyKey } from './admit.ts';
import { MACHINE_COLUMNS } from './columns.ts';
import type { CreateRequest } from './source.ts';

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
  | { kind: 'key taken' }
  | { kind: 'volume taken' };

type Answer = LimitColumns & UseColumns & { [Column in keyof MachineRow]: MachineRow[Column] | null };

type Variant = { withKey: boolean; withVolume: boolean };

/** What a machine counts for; `storage` is an expression, in GiB. */
const amountsOf = (storage: string) => ({
  machines: '1',
  vcpus: '$5::int',
  memory_mb: '$6::int',
  storage_gb: storage,
});

const KEY_PART = `, key_taken as (
    insert into idempotency_keys (account_id, key, fingerprint, machine_id)
    select fit.account_id, $17, $18, $3 from fit
  )`;

/** What the volume counts for already is not asked for again, of an account that is over its limit neither. */
const VOLUME_PARTS = {
  lock: `taken as materialized (
    select id, account_id, size_gb from volumes
    where id = $16::uuid and account_id = $1 and kind = 'root' and state = 'available' and change is null and not deleting
    for update
  ), `,
  from: ', taken',
  storage: '($7::int - taken.size_gb)',
  take: `, volume as (
    update volumes set change = 'taking', machine_id = $3 from fit where volumes.id = $16::uuid
  )`,
};
const NO_VOLUME = { lock: '', from: '', storage: '$7::int', take: '' };

/** A key conflict, like an address conflict, is an error of the statement, which undoes the rest of it. */
function admitting({ withKey, withVolume }: Variant): string {
  const { lock, from, storage, take } = withVolume ? VOLUME_PARTS : NO_VOLUME;
  const { storage_gb, ...others } = amountsOf(storage);
  const fits = `${fitsInSql('account', others)} and (${storage} <= 0 or ${fitsInSql('account', { storage_gb })})`;
  return `
  with ${lock}account as materialized (
    select accounts.id, tier, ${ACCOUNT_QUOTA_COLUMNS} from accounts${from} where accounts.id = $1
    for no key update of accounts
  ), place as materialized (
    select hosts.id, subnet, memory_mb, reserved_memory_mb, address_counter, isolation, draining
    from hosts, account where hosts.id = $2 for no key update of hosts
  ), fit as materialized (
    select account.id as account_id, place.id as host_id, place.isolation, ${storage} as storage_gb,
      coalesce($12::text, ${addressInSql('place.subnet', 'place.address_counter + 1 + $13::int')}) as address
    from account, place${from}
    where not place.draining and place.reserved_memory_mb + $6::int <= place.memory_mb * $14::float8 and ${fits}
  ), charged as (
    update accounts set ${chargeInSql(amountsOf('fit.storage_gb'))} from fit where accounts.id = fit.account_id
  ), reserved as (
    update hosts
    set reserved_memory_mb = hosts.reserved_memory_mb + $6::int,
      address_counter = (hosts.address_counter + 1 + $13::int) % 1000000000
    from fit where hosts.id = fit.host_id
  ), machine as (
    insert into machines (id, account_id, host_id, name, state, desired, generation, vcpus, memory_mb, rootfs_size_gb,
      stack, private_ip, metadata, isolation, claim_token, claim_expires_at, snapshot_id, root_volume_id)
    select $3, fit.account_id, fit.host_id, $4, 'provisioning', 'running', 1, $5::int, $6::int, $7::int,
      $8, fit.address, $9::jsonb, fit.isolation, $10::uuid, now() + $11::int * interval '1 millisecond', $15::uuid,
      $16::uuid
    from fit
    returning ${MACHINE_COLUMNS}
  )${take}${withKey ? KEY_PART : ''}
  select tier, ${ACCOUNT_QUOTA_COLUMNS}, machine.* from account left join machine on true`;
}

const prepareAdmission = (name: string, variant: Variant) => prepare<Answer>(name, admitting(variant));
const ADMISSIONS = {
  plain: prepareAdmission('admit_machine', { withKey: false, withVolume: false }),
  plainWithKey: prepareAdmission('admit_machine_with_key', { withKey: true, withVolume: false }),
  ofVolume: prepareAdmission('admit_machine_of_volume', { withKey: false, withVolume: true }),
  ofVolumeWithKey: prepareAdmission('admit_machine_of_volume_with_key', { withKey: true, withVolume: true }),
};

/** Tries to admit a machine to one host with one address. */
export async function tryToAdmit(app: App, admission: Admission, choice: AddressChoice): Promise<Outcome> {
  const { id, accountId, host, request, token, idempotencyKey } = admission;
  const { source } = request;
  const values = [
    ...[accountId, host.id, id, request.name, request.vcpus, request.memory_mb, request.rootfs_size_gb, request.stack],
    ...[JSON.stringify(request.metadata), token, app.config.timing.claimTtlMs],
    ...('skip' in choice ? [null, choice.skip] : [choice.address, 0]),
    app.config.memoryOvercommit,
    source?.kind === 'snapshot' ? source.id : null,
    source?.kind === 'volume' ? source.id : null,
    ...(idempotencyKey ? [idempotencyKey.key, idempotencyKey.fingerprint] : []),
  ];
  const isOfVolume = source?.kind === 'volume';
  const admit = ADMISSIONS[`${isOfVolume ? 'ofVolume' : 'plain'}${idempotencyKey ? 'WithKey' : ''}`];
  try {
    const [answer] = await admit(app.db, values);
    if (!answer && isOfVolume) return { kind: 'volume taken' };
    if (!answer) throw new Error('the account or the host went during a create');
    return isAdmitted(answer) ? { kind: 'admitted', machine: answer } : { kind: 'refused', account: answer };
  } catch (error) {
    if (isUniqueViolation(error, 'machines_address')) return { kind: 'address taken' };
    if (isUniqueViolation(error, 'idempotency_keys_pkey')) return { kind: 'key taken' };
    throw error;
  }
}

const isAdmitted = (answer: Answer): answer is Answer & MachineRow => answer.id !== null;
