// Checks that a volume moves to another host by an attach, and that a drain empties a host, with real disks and a snapshot on
// real hosts. What was written before must be read afterwards. Returns a sentence for each difference from what should be.
import { existsSync } from 'node:fs';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import type { HostSummary } from '@sandbar/contract/admin.ts';
import { homePaths } from '@sandbar/contract/home.ts';
import type { Fleet } from './bed/fleet.ts';
import type { Call } from './cuts.ts';

const SMALL = { memory_mb: 256, rootfs_size_gb: 2 };
const PATIENCE_MS = 180_000;
/** How many machines are made at most until one is on another host. */
const TRIES = 12;
/** Writes random data with a hole in front of it, and prints its checksum. */
const writeInto = (folder: string) =>
  `head -c 8000000 /dev/urandom > ${folder}/a && cp ${folder}/a ${folder}/b && truncate -s 300000000 ${folder}/b && ` +
  `sync && cat ${folder}/a ${folder}/b | sha256sum`;
const readFrom = (folder: string) => `cat ${folder}/a ${folder}/b | sha256sum`;

export async function checkMoves(fleet: Fleet, call: Call): Promise<string[]> {
  const differences: string[] = [];
  const ask = async (method: string, at: string, body?: object) => {
    const answer = await call(method, at, body);
    if (answer.status >= 300) throw new Error(`${method} ${at} answered ${answer.status}: ${answer.body.detail}`);
    return answer.body;
  };
  const run = async (machine: string, command: string): Promise<string> => {
    const { output, exit_code } = await ask('POST', `/v1/machines/${machine}/execs?wait_ms=60000`, { command });
    const text = Buffer.from((output as { stdout: { data: string } }).stdout.data, 'base64').toString();
    if (exit_code !== 0) throw new Error(`${command} ended with ${exit_code}: ${text}`);
    return text;
  };
  const create = async (body: object = {}) => String((await ask('POST', '/v1/machines', { ...SMALL, ...body })).id);
  const hostOfMachine = (id: string) =>
    fleet.hosts.findIndex((_, index) => fleet.machinesOn(index + 1).includes(id)) + 1;
  const hostsOfVolume = (id: string) =>
    fleet.hosts.flatMap((_, index) =>
      existsSync(path.join(homePaths(fleet.homeOfHost(index + 1)).volumes, id)) ? [index + 1] : [],
    );

  const volume = String((await ask('POST', '/v1/volumes', { size_gb: 5 })).id);
  const volumes = [{ volume_id: volume, mount_path: '/data' }];
  const writer = await create({ volumes });
  const written = await run(writer, writeInto('/data'));
  await ask('POST', `/v1/volumes/${volume}/detach`);
  let reader = '';
  for (let tries = 0; tries < TRIES && reader === ''; tries++) {
    const made = await create();
    if (hostOfMachine(made) === hostOfMachine(writer)) await ask('DELETE', `/v1/machines/${made}`);
    else reader = made;
  }
  await ask('POST', `/v1/volumes/${volume}/attach`, { machine_id: reader, mount_path: '/data' });
  if ((await run(reader, readFrom('/data'))) !== written) differences.push('a volume that moved has other content');
  await until('the old copy is deleted', () => hostsOfVolume(volume).join() === `${hostOfMachine(reader)}`);
  await ask('DELETE', `/v1/machines/${writer}`);

  const old = hostOfMachine(reader);
  const frozen = await run(reader, writeInto('/root'));
  const snapshot = String((await ask('POST', `/v1/machines/${reader}/snapshots`)).id);
  const kept = await run(reader, writeInto('/root'));
  await ask('POST', `/v1/machines/${reader}/stop`);
  const { hosts } = await operatorGet(fleet);
  const { id } = hosts.find(({ name }) => name === `h${old}`) ?? { id: '' };
  await fleet.operator(`/admin/hosts/${id}/drain`, {});
  await until('the drained host is empty', async () => {
    const host = (await operatorGet(fleet)).hosts.find((one) => one.id === id);
    return host?.machines === 0 && host.volumes === 0 && host.snapshots === 0;
  });
  await ask('POST', `/v1/machines/${reader}/start`);
  if (hostOfMachine(reader) === old) differences.push('a machine is still on the host that was drained');
  if ((await run(reader, readFrom('/root'))) !== kept) differences.push('a machine that moved has another root disk');
  if ((await run(reader, readFrom('/data'))) !== written) differences.push('a volume moved with its machine badly');
  const clone = await create({ snapshot_id: snapshot });
  if ((await run(clone, readFrom('/root'))) !== frozen) differences.push('a snapshot moved with its machine badly');
  await ask('DELETE', `/v1/machines/${clone}`);
  await ask('POST', `/v1/snapshots/${snapshot}/restore`);
  if ((await run(reader, readFrom('/root'))) !== frozen)
    differences.push('a machine that moved was not restored from its snapshot');
  await until('nothing is left on the drained host', () => {
    const hasSnapshot = existsSync(path.join(homePaths(fleet.homeOfHost(old)).snapshots, snapshot));
    return !hasSnapshot && !fleet.machinesOn(old).includes(reader) && !hostsOfVolume(volume).includes(old);
  });
  await fleet.operator(`/admin/hosts/${id}/uncordon`, {});
  await ask('DELETE', `/v1/machines/${reader}?delete_snapshots=true`);
  await ask('DELETE', `/v1/volumes/${volume}`);
  return differences;
}

const operatorGet = (fleet: Fleet) => fleet.operatorGet<{ hosts: HostSummary[] }>('/admin/hosts');

async function until(what: string, isTrue: () => boolean | Promise<boolean>): Promise<void> {
  for (const end = performance.now() + PATIENCE_MS; ; await delay(200)) {
    if (await isTrue()) return;
    if (performance.now() > end) throw new Error(`not in ${PATIENCE_MS / 1000} s: ${what}`);
  }
}
