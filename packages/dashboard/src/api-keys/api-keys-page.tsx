// The list of API keys. The secret of a key is shown once, right after the key is created.
import { useQuery } from '@tanstack/react-query';
import { getRouteApi } from '@tanstack/react-router';
import { samplesOf } from '../machines/samples.ts';
import { ActionStatus } from '../ui/actions.tsx';
import { Button } from '../ui/button.tsx';
import { CodeSample } from '../ui/code-sample.tsx';
import { DataTable } from '../ui/data-table.tsx';
import { PageHead } from '../ui/page-head.tsx';
import { QueryGate } from '../ui/query-gate.tsx';
import { API_KEY_COLUMNS } from './api-key-columns.tsx';
import { apiKeysQuery } from './api-keys-query.ts';
import { NewApiKey } from './new-api-key.tsx';

const route = getRouteApi('/signed-in/api-keys');

export function ApiKeysPage() {
  const { new: isNew = false } = route.useSearch();
  const navigate = route.useNavigate();
  const keys = useQuery(apiKeysQuery);
  return (
    <>
      <PageHead
        title="API keys"
        count={keys.data?.length}
        actions={
          <Button kind="primary" onClick={() => void navigate({ search: { new: true }, replace: true })}>
            New API key
          </Button>
        }
      />
      <ActionStatus scope="api-keys" />
      <QueryGate query={keys} what="API keys">
        {(all) => (
          <DataTable
            label="API keys"
            rows={all}
            columns={API_KEY_COLUMNS}
            idOf={({ id }) => id}
            empty={<NoApiKeys />}
          />
        )}
      </QueryGate>
      <NewApiKey open={isNew} onClose={() => void navigate({ search: {}, replace: true })} />
    </>
  );
}

function NoApiKeys() {
  const samples = samplesOf({
    origin: location.origin,
    method: 'GET',
    path: '/v1/machines',
    cli: 'sandbar machine ls',
    typescript: 'const machines = await sandbar.machines.list();',
  });
  return (
    <>
      <p>There are no API keys yet. Programs use one in the variable SANDBAR_API_KEY:</p>
      <CodeSample samples={samples} />
    </>
  );
}
