// Breaks the host under a running service: QEMU no longer starts, an image is deleted, the disk fills up. The service
// must refuse requests that it cannot fulfil with a clear sentence, running machines must go on, and no output may be
// lost.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, renameSync, rmSync, symlinkSync } from 'node:fs';
import path from 'node:path';
import { after, before, describe, it } from 'node:test';
import type { Exec } from '@sandbar/contract/exec.ts';
import { homePaths } from '@sandbar/contract/home.ts';
import { HOST_PATHS } from '@sandbar/contract/host-api.ts';
import type { Machine } from '@sandbar/contract/machine.ts';
import { requestUnix } from '@sandbar/service/unix-request.ts';
import { Collector } from '../../packages/tracing/tests/support/collector.ts';
import { type Api, apiOf, endOf, hashOutput, SMALL, startJob } from './support/api.ts';
import { fill, fillRest, freeBytes } from './support/disk.ts';
import { assertNothingLeft, remains } from './support/leftovers.ts';
import { folder, homeOf, IS_ROOT, imageFiles, mountDisk, type Start, start } from './support/service-process.ts';
import { read, until } from './support/until.ts';

/** Size of the data directory's disk. PostgreSQL takes 60 MB of it and a machine 10 to 20; the test fills the rest. */
const SMALL_DISK = '256m';

describe('a host that breaks under a running service', () => {
  const qemu = path.join(folder, 'qemu');
  let real: string;
  let home: string;
  let service: Start;
  let api: Api;
  let collector: Collector | undefined;

  before(async () => {
    real = execFileSync('sh', ['-c', 'command -v qemu-system-x86_64'], { encoding: 'utf8' }).trim();
    symlinkSync(real, qemu);
    home = IS_ROOT ? mountDisk('home', `size=${SMALL_DISK}`) : homeOf('home');
    // No templates and so no clones: the service makes clones in the background, which would take space on the small
    // disk.
    collector = await Collector.start();
    const traces = { ...collector.env, OTEL_BSP_SCHEDULE_DELAY: '100' };
    service = start('home', { SANDBAR_QEMU: qemu, SANDBAR_TEMPLATES: '0', ...traces });
    await service.ready;
    api = apiOf(home);
  });
  after(() => collector?.close());

  it('a second start on the same data directory fails with "already running", and the first service goes on', async () => {
    const { code, sentence } = await start('home').ended;
    assert.equal(code, 1);
    assert.match(sentence, new RegExp(`already running on ${home} \\(pid \\d+\\)`));
    assert.equal((await api('GET', '/v1/machines')).status, 200);
  });

  it('a create and an exec are one trace each, from the request to the answer of the guest', async () => {
    const machine = await api<Machine>('POST', '/v1/machines', SMALL);
    assert.equal(machine.status, 201);
    await startJob(api, machine.body.id, 'true');
    assert.equal((await api('DELETE', `/v1/machines/${machine.body.id}`)).status, 200);
    const { spans } = collector ?? assert.fail();
    const wayUpFrom = (name: string): string[] => {
      const way: string[] = [];
      let span = spans.find((one) => one.name === name);
      while (span) {
        way.push(`${span.service} ${span.name}`);
        const { parentSpanId, traceId } = span;
        span = spans.find((one) => one.spanId === parentSpanId && one.traceId === traceId);
      }
      return way;
    };
    const isWhole = (name: string) => wayUpFrom(name).at(-1)?.startsWith('sandbar-control-plane POST ') === true;
    await until('both traces are there', () => isWhole('guest.identity') && isWhole('guest.job'));
    assert.deepEqual(wayUpFrom('guest.identity'), [
      'sandbar-host-agent guest.identity',
      'sandbar-host-agent machine.start',
      'sandbar-host-agent PUT /v1/machines/:id',
      'sandbar-control-plane host PUT /v1/machines/:id',
      'sandbar-control-plane operation.create',
      'sandbar-control-plane POST /v1/machines',
    ]);
    assert.deepEqual(wayUpFrom('guest.job'), [
      'sandbar-host-agent guest.job',
      'sandbar-host-agent PUT /v1/machines/:id/jobs/:job_id',
      'sandbar-control-plane host PUT /v1/machines/:id/jobs/:id',
      'sandbar-control-plane POST /v1/machines/:id/execs',
    ]);
    const { text } = await requestUnix(homePaths(home).hostAgentSocket, { path: HOST_PATHS.metrics });
    // The start of the service has made a test machine too.
    assert.match(text, /^sandbar_agent_machine_start_duration_seconds_count\{path="cold"\} 2$/m);
    // From here on the service runs without its collector.
    await collector?.close();
  });

  it('a create with a broken QEMU is a 503 that says so and leaves nothing; a repaired QEMU works again', async () => {
    const before = remains(home);
    pointTo('/bin/false');
    const refused = await api('POST', '/v1/machines', SMALL);
    assert.deepEqual([refused.status, refused.body.code], [503, 'host_unavailable']);
    assert.match(refused.body.detail, /cannot start machines: .*qemu ended with code \d+: ./);
    await assertNothingLeft(api, home, before);
    pointTo(real);
    const machine = await api<Machine>('POST', '/v1/machines', SMALL);
    assert.equal(machine.status, 201);
    assert.equal((await api('DELETE', `/v1/machines/${machine.body.id}`)).status, 200);
  });

  it('a create with a deleted image is a 503 that says what to do and leaves nothing; a restored image works again', async () => {
    const before = remains(home);
    const { manifest } = imageFiles();
    for (const file of [manifest, imageFiles().rootfs]) {
      renameSync(file, `${file}.away`);
      const refused = await api('POST', '/v1/machines', SMALL);
      renameSync(`${file}.away`, file);
      assert.deepEqual([refused.status, refused.body.code], [503, 'host_unavailable']);
      assert.match(refused.body.detail, /cannot use the image "base": .*run npm start again/);
      await assertNothingLeft(api, home, before);
    }
    const machine = await api<Machine>('POST', '/v1/machines', SMALL);
    assert.equal(machine.status, 201);
    assert.equal((await api('DELETE', `/v1/machines/${machine.body.id}`)).status, 200);
  });

  it('on a full disk creates and jobs are refused, running jobs go on, and no byte is lost', {
    skip: !IS_ROOT,
  }, async () => {
    const machine = (await api<Machine>('POST', '/v1/machines', SMALL)).body;
    const doomed = (await api<Machine>('POST', '/v1/machines', SMALL)).body;
    const vm = read(`${home}/run/machines/${machine.id}/qemu.pid`);
    await startJob(api, doomed.id, 'sleep 1000');
    const before = remains(home);
    const filler = fill(home, 4 * 2 ** 20);

    const job = await startJob(api, machine.id, 'seq 1 2800000');
    await until('the output has filled the disk', () => freeBytes(home) < 64 * 1024);
    fillRest(filler);
    const refused = await api('POST', '/v1/machines', SMALL);
    assert.equal(refused.status, 503, JSON.stringify(refused.body));
    // The host refuses it, or the control plane has already read that the host's disk is full.
    assert.match(refused.body.detail, /no disk space left|GiB of disk now/);
    const noJob = await api('POST', `/v1/machines/${machine.id}/execs`, { command: 'true' });
    assert.equal(noJob.status, 503, JSON.stringify(noJob.body));
    assert.match(noJob.body.detail, /no disk space left/);
    await assertNothingLeft(api, home, before);
    assert.equal((await api<Machine>('GET', `/v1/machines/${machine.id}`)).body.state, 'running');
    assert.equal((await api<Exec>('GET', `/v1/machines/${machine.id}/execs/${job}`)).body.status, 'running');

    // A destroy, which frees space, works on the full disk.
    assert.equal((await api('DELETE', `/v1/machines/${doomed.id}`)).status, 200);
    assert.equal(existsSync(`${home}/machines/${doomed.id}`), false);

    rmSync(filler);
    assert.equal(await endOf(api, machine.id, job), 0);
    const expected = createHash('sha256');
    for (let line = 1; line <= 2_800_000; line++) expected.update(`${line}\n`);
    assert.equal(await hashOutput(api, machine.id, job), expected.digest('hex'));
    assert.equal(read(`${home}/run/machines/${machine.id}/qemu.pid`), vm, 'the machine still has the same VM');

    // Now the machine's own disk fills the host's disk. Its writes must wait until there is space, and must not fail.
    const again = fill(home, 4 * 2 ** 20);
    const write = 'head -c 16000000 /dev/urandom > /root/x && sync && sha256sum </root/x && rm /root/x';
    const writing = await startJob(api, machine.id, write);
    await until('the machine has filled the disk', () => freeBytes(home) < 128 * 1024);
    rmSync(again);
    assert.equal(await endOf(api, machine.id, writing), 0);
    assert.equal(await endOf(api, machine.id, await startJob(api, machine.id, 'echo works')), 0);
    // The control plane reads the host's free space every few seconds. Until then it refuses creates.
    let next = await api<Machine>('POST', '/v1/machines', SMALL);
    await until('the control plane has read that there is space again', async () => {
      if (next.status === 503) next = await api<Machine>('POST', '/v1/machines', SMALL);
      return next.status !== 503;
    });
    assert.equal(next.status, 201, JSON.stringify(next.body));
    for (const { id } of [machine, next.body]) assert.equal((await api('DELETE', `/v1/machines/${id}`)).status, 200);
  });

  it('Ctrl-C ends the service', async () => {
    service.child.kill('SIGINT');
    assert.equal((await service.ended).code, 0);
  });
});

/** Replaces the QEMU of the running service by another program. */
function pointTo(program: string): void {
  const link = path.join(folder, 'qemu');
  rmSync(link);
  symlinkSync(program, link);
}
