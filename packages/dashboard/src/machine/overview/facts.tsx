// The facts about a machine that the person cannot edit. Its state is in the head of the page.
import { Link } from '@tanstack/react-router';
import type { ReactNode } from 'react';
import type { Schemas } from '../../api/client.ts';
import { operationWords } from '../../machines/operation-words.ts';
import { exactTime, Time } from '../../ui/time.tsx';
import styles from './overview.module.css';

const ISOLATION: Record<Schemas['Machine']['isolation'], string> = {
  kvm: 'KVM (hardware virtualisation)',
  emulated: 'emulated (no security boundary)',
};

export function Facts({ machine }: { machine: Schemas['Machine'] }) {
  const { operation } = machine;
  return (
    <dl className={styles.facts}>
      {machine.error === null ? null : (
        <Fact term="Error">
          <bdi className={styles.bad}>{machine.error}</bdi>
        </Fact>
      )}
      {operation === null ? null : (
        <Fact term="Under way">
          {operationWords(operation)}, asked for <Time at={operation.since} />
          {operation.last_error === null ? null : (
            <div className={styles.bad}>
              The last attempt failed: <bdi>{operation.last_error}</bdi>
            </div>
          )}
        </Fact>
      )}
      <Fact term="Id">
        <code>{machine.id}</code>
      </Fact>
      <Fact term="Shape">
        {machine.vcpus} vCPU, {machine.memory_mb} MiB memory, {machine.rootfs_size_gb} GiB disk
      </Fact>
      <Fact term="Stack">
        <bdi>{machine.stack}</bdi>
      </Fact>
      <Fact term="Address">{machine.private_ip === null ? 'none' : <code>{machine.private_ip}</code>}</Fact>
      <Fact term="Isolation">{ISOLATION[machine.isolation]}</Fact>
      {machine.snapshot_id === null ? null : (
        <Fact term="Made from snapshot">
          <code>{machine.snapshot_id}</code>
        </Fact>
      )}
      <RootVolume machine={machine} />
      <Moment term="Created" at={machine.created_at} />
      <Moment term="Started" at={machine.started_at} />
      <Moment term="Stopped" at={machine.stopped_at} />
      <Moment term="Destroyed" at={machine.destroyed_at} />
      <Fact term="Environment">Set when the machine is created, and never shown again.</Fact>
    </dl>
  );
}

function RootVolume({ machine: { root_volume_id, state } }: { machine: Schemas['Machine'] }) {
  if (root_volume_id === null) return null;
  if (state !== 'destroyed') {
    return (
      <Fact term="Made from disk">
        <code>{root_volume_id}</code>
      </Fact>
    );
  }
  return (
    <Fact term="Its disk is kept">
      <Link to="/machines" search={{ new: true, boot: 'disk', from: root_volume_id }}>
        Create a machine from it
      </Link>
    </Fact>
  );
}

function Moment({ term, at }: { term: string; at: string | null }) {
  if (at === null) return null;
  return (
    <Fact term={term}>
      <Time at={at} /> ({exactTime(at)})
    </Fact>
  );
}

function Fact({ term, children }: { term: string; children: ReactNode }) {
  return (
    <>
      <dt>{term}</dt>
      <dd>{children}</dd>
    </>
  );
}
