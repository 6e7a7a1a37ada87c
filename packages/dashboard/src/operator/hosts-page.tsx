// The hosts that machines run on: how much room each has, and whether it takes new machines.
import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query';
import { type AdminSchemas, adminApi } from '../api/admin-client.ts';
import { unwrap } from '../api/client.ts';
import { Badge, type Tone } from '../ui/badge.tsx';
import { Button } from '../ui/button.tsx';
import { Empty } from '../ui/empty.tsx';
import { PageHead } from '../ui/page-head.tsx';
import { Problem, ProblemText } from '../ui/problem.tsx';
import { Time } from '../ui/time.tsx';
import { isolate } from '../ui/visible-text.ts';
import styles from './operator.module.css';
import { hostsQuery } from './queries.ts';

type Host = AdminSchemas['HostSummary'];
const TONES: Record<Host['state'], Tone> = {
  ready: 'good',
  cordoned: 'wait',
  draining: 'wait',
  away: 'bad',
  removed: 'quiet',
};
const MB_PER_GB = 1024;

export function HostsPage() {
  const { data: hosts, error, refetch } = useQuery(hostsQuery);
  return (
    <>
      <PageHead title="Hosts" count={hosts?.length} />
      {error && !hosts ? (
        <Problem title="The hosts could not be loaded." error={error} onRetry={() => void refetch()} />
      ) : null}
      {!error && !hosts ? <p role="status">Loading hosts…</p> : null}
      {hosts?.length === 0 ? (
        <Empty samples={[{ label: 'CLI', code: 'sandbar admin host list' }]}>
          No host has connected yet. One comes with npm start.
        </Empty>
      ) : null}
      {hosts?.map((host) => (
        <HostCard key={host.id} host={host} />
      ))}
    </>
  );
}

function HostCard({ host }: { host: Host }) {
  return (
    <section className={styles.card} aria-label={`Host ${host.id}`}>
      <header className={styles.part}>
        <h2>
          <code>{host.id}</code>
        </h2>
        <Badge tone={TONES[host.state]}>{host.draining && host.state === 'away' ? 'away, cordoned' : host.state}</Badge>
        {host.name === '' ? null : <span>{host.name}</span>}
        {host.state === 'removed' ? null : <CordonButton host={host} />}
      </header>
      <p className={styles.quiet}>
        Version {host.version}, {host.isolation}, {host.machines} {host.machines === 1 ? 'machine' : 'machines'}, seen{' '}
        <Time at={host.last_seen_at} />
      </p>
      {host.remaining && host.remaining.length > 0 ? (
        <details>
          <summary>{`${host.remaining.length} still to move`}</summary>
          <ul>
            {host.remaining.map(({ kind, id, why }) => (
              <li key={id}>
                {kind} <code>{id}</code>: {isolate(why)}
              </li>
            ))}
          </ul>
        </details>
      ) : null}
      {host.isolation === 'emulated' ? (
        <p className={styles.quiet}>This host has no hardware virtualisation, so its machines are slow.</p>
      ) : null}
      <dl className={styles.rooms}>
        <Room name="vCPUs" used={host.reserved_vcpus} size={host.cpus} unit="" />
        <Room name="Memory" used={host.reserved_memory_mb} size={host.memory_mb} unit=" MiB" />
        <Room name="Disk" used={host.reserved_disk_gb} size={Math.floor(host.disk_mb / MB_PER_GB)} unit=" GiB" />
      </dl>
      <p className={styles.quiet}>
        {Math.floor(host.disk_free_mb / MB_PER_GB)} GiB of the disk are free. Disks of machines grow as they are
        written.
      </p>
    </section>
  );
}

/** More can be reserved than there is, because the service overcommits. */
function Room({ name, used, size, unit }: { name: string; used: number; size: number; unit: string }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>
        {`${used} of ${size}${unit} reserved`}
        <div className={styles.track} aria-hidden="true">
          <div className={styles.fill} style={{ width: `${size === 0 ? 0 : Math.min(100, (100 * used) / size)}%` }} />
        </div>
      </dd>
    </div>
  );
}

function CordonButton({ host: { id, draining } }: { host: Host }) {
  const queryClient = useQueryClient();
  const change = useMutation({
    mutationFn: () => {
      const params = { path: { id } };
      return draining
        ? unwrap(adminApi.POST('/admin/v1/hosts/{id}/uncordon', { params }))
        : unwrap(adminApi.POST('/admin/v1/hosts/{id}/cordon', { params }));
    },
    onSuccess: () => queryClient.invalidateQueries(hostsQuery),
  });
  return (
    <>
      <Button busy={change.isPending} onClick={() => change.mutate()}>
        {draining ? 'Take new machines again' : 'Cordon'}
      </Button>
      <span className={styles.quiet}>
        {draining ? 'It takes no new machines.' : 'A cordoned host takes no new machines and keeps those it has.'}
      </span>
      {change.error ? (
        <span role="alert" className={styles.bad}>
          <ProblemText error={change.error} />
        </span>
      ) : null}
    </>
  );
}
