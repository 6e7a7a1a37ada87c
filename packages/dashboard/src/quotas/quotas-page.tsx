// How much of each quota the account uses. Each quota has an anchor, so that a refusal can link to it.
import { Meter } from '@base-ui/react/meter';
import { type QuotaDimension, TIER_LIMITS } from '@sandbar/contract/tier-limits.ts';
import { useQuery } from '@tanstack/react-query';
import { useLocation } from '@tanstack/react-router';
import { useEffect, useRef } from 'react';
import type { Schemas } from '../api/client.ts';
import { PageHead } from '../ui/page-head.tsx';
import { QueryGate } from '../ui/query-gate.tsx';
import styles from './quotas.module.css';
import { quotasQuery } from './quotas-query.ts';

type Quotas = Schemas['Quotas'];
type Quota = Quotas['quotas'][number];

const LABELS: Record<QuotaDimension, string> = {
  machines: 'Machines',
  vcpus: 'vCPUs',
  memory_mb: 'Memory (MiB)',
  storage_gb: 'Storage (GiB)',
  volumes: 'Volumes',
};

const number = new Intl.NumberFormat();

export function QuotasPage() {
  const quotas = useQuery(quotasQuery);
  return (
    <>
      <PageHead title="Quotas" />
      <QueryGate query={quotas} what="quotas">
        {({ tier, quotas: all, largest_machine: largest }) => (
          <>
            <p className={styles.intro}>
              Your tier is <strong>{tier}</strong>. One machine has at most {number.format(largest.vcpus)} vCPUs,{' '}
              {number.format(largest.memory_mb)} MiB of memory and a disk of {number.format(largest.rootfs_size_gb)}{' '}
              GiB.
            </p>
            {all.map((quota) => (
              <QuotaBar key={quota.name} quota={quota} tier={tier} />
            ))}
          </>
        )}
      </QueryGate>
    </>
  );
}

function QuotaBar({ quota, tier }: { quota: Quota; tier: Quotas['tier'] }) {
  const { name, used, limit, description } = quota;
  const isNamed = useLocation({ select: (location) => location.hash === name });
  const element = useRef<HTMLElement>(null);
  // The browser looks for the anchor before the quotas are loaded, so the quota takes the focus itself, which brings it
  // into view.
  useEffect(() => {
    if (isNamed) element.current?.focus();
  }, [isNamed]);
  const text = `${number.format(used)} of ${number.format(limit)}`;
  const ofTier = TIER_LIMITS[tier][name];
  // An account may be over its limit, after the operator lowered it. A limit of 0 counts as full.
  const percent = limit === 0 ? 100 : Math.min(100, (100 * used) / limit);
  const level = percent >= 100 ? styles.full : percent >= 80 ? styles.high : '';
  return (
    <section
      ref={element}
      id={name}
      tabIndex={-1}
      aria-label={LABELS[name]}
      className={`${styles.quota} ${isNamed ? styles.named : ''}`}
    >
      <Meter.Root value={percent} aria-valuetext={text} className={styles.meter}>
        <Meter.Label className={styles.label}>{LABELS[name]}</Meter.Label>
        <span className={styles.value}>{text}</span>
        <Meter.Track className={styles.track}>
          <Meter.Indicator className={`${styles.indicator} ${level}`} />
        </Meter.Track>
      </Meter.Root>
      <p className={styles.description}>
        {description}{' '}
        {ofTier === limit
          ? `The limit is that of the tier ${tier}.`
          : `The operator set this limit for your account; that of the tier ${tier} is ${number.format(ofTier)}.`}
      </p>
    </section>
  );
}
