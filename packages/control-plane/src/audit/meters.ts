// Audits the meters: exactly the resources in use must have open meters, and no two meters of a resource may overlap.
import type { ResourceKind } from '@sandbar/contract/billing.ts';
import { sql } from 'kysely';
import type { App } from '../app.ts';
import type { Finding } from './finding.ts';
import { correctMeter } from './mend.ts';
import { findMismatches, type Mismatch, SHOWN } from './mismatches.ts';

/** Returns the findings about open meters and about meters that overlap. */
export async function findInMeters(app: App): Promise<Finding[]> {
  return [...(await findMismatches(app.db)).map(toFinding), ...(await findOverlaps(app))];
}

function toFinding(mismatch: Mismatch): Finding {
  const { id, kind, used_account, meter_account, meter_id } = mismatch;
  const about = { area: 'meter', hostId: null, subject: id, key: `meter/${id}/${meter_id}` } as const;
  const detail = describe(mismatch);
  if (used_account !== null && meter_account !== null && used_account !== meter_account) return { ...about, detail };
  const mend = {
    fix: used_account === null ? 'close its meter' : 'meter it correctly from now on',
    did: used_account === null ? 'closed its meter' : 'metered it correctly from then on',
    run: (app: App) => correctMeter(app, kind, id),
  };
  return { ...about, detail, mend };
}

function describe(mismatch: Mismatch): string {
  const { kind, used_account, used_size, meter_account, meter_size, meter_price, price_in_force } = mismatch;
  if (used_account === null) return `The ${kind} is not in use, but has an open meter.`;
  if (meter_account === null) return `The ${kind} is in use, but has no open meter.`;
  if (used_account !== meter_account) return `The ${kind} has an open meter of another account, ${meter_account}.`;
  if (used_size !== meter_size) return `The open meter of the ${kind} counts ${meter_size} instead of ${used_size}.`;
  return `The open meter of the ${kind} has price list ${meter_price} instead of ${price_in_force}.`;
}

/** Finds time that two meters of a resource charged twice. There is no repair; the operator adds a correction. */
async function findOverlaps({ db }: App): Promise<Finding[]> {
  const { rows } = await sql<{ id: number; resource_id: string; kind: ResourceKind; started_at: Date }>`
    select id, resource_id, resource_kind as kind, started_at
    from (
      select *, max(ended_at) over (partition by resource_id order by started_at, id
        rows between unbounded preceding and 1 preceding) as last_end
      from meters) as meters
    where started_at < last_end
    order by id limit ${SHOWN}`.execute(db);
  return rows.map(({ id, resource_id, kind, started_at }) => ({
    area: 'meter',
    hostId: null,
    subject: resource_id,
    key: `meter-overlap/${id}`,
    detail: `Meter ${id} of the ${kind} begins at ${started_at.toISOString()}, before the previous meter ends.`,
  }));
}
