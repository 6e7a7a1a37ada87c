// The rows in which a person writes metadata or environment variables, and their conversion from and to an object.

/** `original`: the value of metadata that is no text, such as a number. It stays as it is unless `value` is edited. */
export type Row = { id: number; key: string; value: string; original?: { text: string; value: unknown } };

let lastId = 0;

export const emptyRow = (): Row => ({ id: ++lastId, key: '', value: '' });

export function rowsOf(object: Record<string, unknown>): Row[] {
  return Object.entries(object).map(([key, value]) => {
    if (typeof value === 'string') return { id: ++lastId, key, value };
    const text = JSON.stringify(value);
    return { id: ++lastId, key, value: text, original: { text, value } };
  });
}

/** The object of the rows. Rows without key and value are left out. */
export function objectOf(rows: readonly Row[]): Record<string, unknown> {
  const filled = rows.filter(({ key, value }) => key !== '' || value !== '');
  return Object.fromEntries(
    filled.map(({ key, value, original }) => [key, original?.text === value ? original.value : value]),
  );
}

/** `current` with what changed from `opened` to `edited`. The rest stays as others wrote it meanwhile. */
export function withChanges(
  current: Record<string, unknown>,
  opened: Record<string, unknown>,
  edited: Record<string, unknown>,
): Record<string, unknown> {
  const merged = new Map(Object.entries(current));
  const before = new Map(Object.entries(opened));
  const after = new Map(Object.entries(edited));
  for (const key of before.keys()) if (!after.has(key)) merged.delete(key);
  for (const [key, value] of after) if (!before.has(key) || before.get(key) !== value) merged.set(key, value);
  return Object.fromEntries(merged);
}

/** What is wrong with the rows, as a sentence. */
export function problemOf(rows: readonly Row[]): string | undefined {
  if (rows.some(({ key, value }) => key === '' && value !== '')) return 'Every value needs a key.';
  const keys = rows.map(({ key }) => key).filter((key) => key !== '');
  const twice = keys.find((key, index) => keys.indexOf(key) !== index);
  return twice === undefined ? undefined : `The key ${JSON.stringify(twice)} is there twice.`;
}
