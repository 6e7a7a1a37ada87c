// The columns of the list of API keys.
import type { Schemas } from '../api/client.ts';
import { Badge } from '../ui/badge.tsx';
import styles from '../ui/clipped.module.css';
import { columnsFor } from '../ui/data-table.tsx';
import type { Columns } from '../ui/data-table-row.tsx';
import { Time, useIsPast } from '../ui/time.tsx';
import { RevokeKey } from './revoke-key.tsx';
import { SCOPES } from './scopes.ts';

type ApiKey = Schemas['ApiKey'];

const column = columnsFor<ApiKey>();
export const API_KEY_COLUMNS: Columns<ApiKey> = column.columns([
  column.accessor('name', {
    header: 'Name',
    cell: ({ row: { original } }) => (
      <bdi className={styles.clipped} title={original.name}>
        {original.name}
      </bdi>
    ),
  }),
  column.accessor('prefix', { header: 'Begins with', cell: ({ row }) => <code>{row.original.prefix}…</code> }),
  column.accessor('scope', { header: 'Scope', cell: ({ row }) => SCOPES[row.original.scope] }),
  column.accessor('last_used_at', {
    header: 'Last used',
    cell: ({ row: { original } }) => (original.last_used_at === null ? 'never' : <Time at={original.last_used_at} />),
  }),
  column.accessor('expires_at', {
    header: 'Expires',
    cell: ({ row: { original } }) => (original.expires_at === null ? 'never' : <Expiry at={original.expires_at} />),
  }),
  column.accessor('created_at', { header: 'Created', cell: ({ row }) => <Time at={row.original.created_at} /> }),
  column.display({ id: 'actions', header: '', cell: ({ row }) => <RevokeKey apiKey={row.original} /> }),
]) as Columns<ApiKey>;

function Expiry({ at }: { at: string }) {
  return useIsPast(at) ? <Badge tone="bad">expired</Badge> : <Time at={at} />;
}
