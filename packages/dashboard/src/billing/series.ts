// Turns the items of a usage answer into rows for charts and tables. Values are EUR, or quantities when nothing was
// charged.
import type { Schemas } from '../api/client.ts';
import type { GroupRow } from './group-table.tsx';
import { UNITS, USAGE_KINDS, USAGE_LABELS, type UsageItem, type UsageKind } from './kinds.ts';
import { daysOf, type Range } from './range.ts';

type Usage = Schemas['Usage'];

export const isCharged = ({ total }: Usage): boolean => Number(total) !== 0;

export type DaySeries = {
  days: string[];
  isMoney: boolean;
  /** For each kind that was used: its value on each of the days. */
  kinds: { kind: UsageKind; label: string; values: number[] }[];
};

export function byDay(usage: Usage, range: Range): DaySeries {
  const days = daysOf(range);
  const isMoney = isCharged(usage);
  const unitOf = new Map(usage.items.map(({ kind, unit }) => [kind, unit]));
  const kinds = USAGE_KINDS.flatMap((kind) => {
    const unit = unitOf.get(kind);
    if (unit === undefined) return [];
    const items = new Map(usage.items.filter((item) => item.kind === kind).map((item) => [item.day, item]));
    const values = days.map((day) => measure(items.get(day), isMoney));
    return [{ kind, label: isMoney ? USAGE_LABELS[kind] : `${USAGE_LABELS[kind]}, ${UNITS[unit]}`, values }];
  });
  return { days, isMoney, kinds };
}

const measure = (item: UsageItem | undefined, isMoney: boolean): number =>
  item === undefined ? 0 : Number(isMoney ? item.amount : item.quantity);

const amountsOf = (item: UsageItem, isMoney: boolean): Omit<GroupRow, 'id' | 'name'> => ({
  value: isMoney ? item.amount : item.quantity,
  quantity: item.quantity,
  unit: UNITS[item.unit],
  amount: item.amount,
});

/** One row for each kind of use. */
export function byKind(usage: Usage): GroupRow[] {
  const isMoney = isCharged(usage);
  return usage.items.map((item) => ({ id: item.kind, name: USAGE_LABELS[item.kind], ...amountsOf(item, isMoney) }));
}

/** One row for each value of the key and each kind of use. */
export function byTag(usage: Usage): GroupRow[] {
  const isMoney = isCharged(usage);
  return usage.items.map((item) => ({
    id: `${item.metadata_value ?? ' '}/${item.kind}`,
    name: item.metadata_value ?? '(no value)',
    detail: USAGE_LABELS[item.kind],
    ...amountsOf(item, isMoney),
  }));
}
