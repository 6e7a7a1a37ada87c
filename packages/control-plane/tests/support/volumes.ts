// Requests and checks that the tests of volumes share.
import assert from 'node:assert/strict';
import type { Volume } from '@sandbar/contract/volume.ts';
import type { VolumeRow } from '../../src/db/tables.ts';
import type { Answer, TestBed } from './test-bed.ts';

export const VOLUME_GB = 7;

export type VolumeActs = ReturnType<typeof createVolumeActs>;

/** Returns short functions for volume requests on one test bed. They use the first account unless a key is given. */
export function createVolumeActs({ api, plane, host, keys }: TestBed) {
  const { db } = plane.app;
  const makeMachine = async (key = keys.full): Promise<string> => {
    const answer = await api('POST', '/v1/machines', { key, body: { memory_mb: 128 } });
    assert.equal(answer.status, 201, answer.text);
    return answer.json.id;
  };
  const makeStopped = async (): Promise<string> => {
    const id = await makeMachine();
    assert.equal((await api('POST', `/v1/machines/${id}/stop`)).status, 200);
    return id;
  };
  const makeVolume = async (key = keys.full): Promise<string> => {
    const answer = await api('POST', '/v1/volumes', { key, body: { size_gb: VOLUME_GB } });
    assert.equal(answer.status, 201, answer.text);
    return answer.json.id;
  };
  const attach = (id: string, machine_id: string, mount_path?: string): Promise<Answer<Volume & Refusal>> =>
    api('POST', `/v1/volumes/${id}/attach`, {
      body: { machine_id, ...(mount_path === undefined ? {} : { mount_path }) },
    });
  const detach = (id: string): Promise<Answer<Volume & Refusal>> => api('POST', `/v1/volumes/${id}/detach`);
  const attached = async (machineId: string, mountPath?: string): Promise<string> => {
    const id = await makeVolume();
    const answer = await attach(id, machineId, mountPath);
    assert.equal(answer.status, 200, answer.text);
    return id;
  };
  const rowOf = (id: string): Promise<VolumeRow | undefined> =>
    db.selectFrom('volumes').selectAll().where('id', '=', id).executeTakeFirst();
  /** Returns the actions in the activity feed that name the volume, oldest first. */
  const entriesOf = async (id: string): Promise<string[]> => {
    const rows = await db.selectFrom('activity').selectAll().orderBy('created_at').execute();
    return rows.filter((row) => row.metadata.volume_id === id).map((row) => row.action);
  };
  /** Returns what the host mounts in a machine: the mount path of each volume. */
  const onHost = (machineId: string): Record<string, string> =>
    Object.fromEntries(
      (host.machines.get(machineId)?.wanted.volumes ?? []).map(({ volume_id, mount_path }) => [volume_id, mount_path]),
    );
  return { makeMachine, makeStopped, makeVolume, attach, detach, attached, rowOf, entriesOf, onHost };
}

type Refusal = { code: string; detail: string };

/** Returns the status and code of a refusal, for comparison. */
export const refusalOf = ({ status, json }: Answer<{ code?: string }>): [number, string | undefined] => [
  status,
  json.code,
];
