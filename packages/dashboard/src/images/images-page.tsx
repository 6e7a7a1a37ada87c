// The images from which machines are made.
import { useQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { api, type Schemas, unwrap } from '../api/client.ts';
import { createSamples } from '../machines/samples.ts';
import { CodeSample } from '../ui/code-sample.tsx';
import { columnsFor, DataTable } from '../ui/data-table.tsx';
import type { Columns } from '../ui/data-table-row.tsx';
import { PageHead } from '../ui/page-head.tsx';
import { QueryGate } from '../ui/query-gate.tsx';
import { Time } from '../ui/time.tsx';
import styles from './images.module.css';

type Image = Schemas['Image'];

const imagesQuery = {
  queryKey: ['images'],
  queryFn: async () => (await unwrap(api.GET('/v1/images'))).images,
};

const column = columnsFor<Image>();
const COLUMNS: Columns<Image> = column.columns([
  column.accessor('stack', {
    header: 'Stack',
    cell: ({ row: { original } }) => (
      <>
        <bdi>{original.stack}</bdi>
        {original.default ? ' (default)' : ''}
      </>
    ),
  }),
  column.accessor('description', {
    header: 'Description',
    cell: ({ row: { original } }) => <bdi className={styles.description}>{original.description}</bdi>,
  }),
  column.accessor('architecture', { header: 'Architecture' }),
  column.accessor('min_rootfs_gb', { header: 'Smallest disk', cell: ({ row }) => `${row.original.min_rootfs_gb} GiB` }),
  column.accessor('digest', {
    header: 'Digest',
    cell: ({ row: { original } }) => (
      <code title={original.digest}>{original.digest.replace(/^sha256:/, '').slice(0, 12)}</code>
    ),
  }),
  column.accessor('created_at', { header: 'Created', cell: ({ row }) => <Time at={row.original.created_at} /> }),
  column.display({
    id: 'create',
    header: '',
    cell: ({ row: { original } }) => (
      <Link to="/machines" search={{ new: true, from: original.stack }}>
        New machine
      </Link>
    ),
  }),
]) as Columns<Image>;

export function ImagesPage() {
  const images = useQuery(imagesQuery);
  return (
    <>
      <PageHead title="Images" count={images.data?.length} />
      <QueryGate query={images} what="images">
        {(all) => (
          <>
            <div className={styles.images}>
              <DataTable
                label="Images"
                rows={all}
                columns={COLUMNS}
                idOf={({ stack }) => stack}
                empty={<p>This service has no images yet.</p>}
              />
            </div>
            <p>Create a machine from one with any of these:</p>
            <CodeSample samples={createSamples(location.origin, { stack: all[0]?.stack ?? 'base' })} />
            <p>The operator of this service adds images with these commands on its host:</p>
            <CodeSample samples={IMPORTS} />
          </>
        )}
      </QueryGate>
    </>
  );
}

const IMPORTS = [
  { label: 'From a recipe', code: 'sandbar image build python' },
  { label: 'From an OCI image', code: 'sandbar image import web docker://registry.example.org/web:1' },
];
