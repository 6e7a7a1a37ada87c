// Tests copies of stopped machines from host to host, with real files.
import assert from 'node:assert/strict';
import { appendFileSync, existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { after, beforeEach, describe, it } from 'node:test';
import { ServiceError } from '@sandbar/contract/errors.ts';
import { RECORD, readMachineRecord } from '../src/machines/record.ts';
import { writeRecordDurably } from '../src/storage/record-file.ts';
import { changed, sha256Of, startHost, streamOf } from './support/copied-host.ts';
import type { FakeHost } from './support/fake-host.ts';
import { SPEC } from './support/fake-host.ts';

const ID = '019a0000-0000-7000-8000-00000000000a';
const JOB = '019a0000-0000-7000-8000-0000000000b1';
const VOLUME = '019a0000-0000-7000-8000-0000000000d1';

describe('a copy of a stopped machine', () => {
  let from: FakeHost;
  let to: FakeHost;
  const used: FakeHost[] = [];
  beforeEach(async () => {
    from = await startHost(used);
    to = await startHost(used);
    await from.dataVolumes.ensure(VOLUME, 1);
    const volumes = [{ volume_id: VOLUME, mount_path: '/data' }];
    await from.registry.ensure(ID, { generation: 1, desired: 'running', spec: SPEC, volumes });
    await from.registry.ensure(ID, { generation: 2, desired: 'stopped', spec: SPEC, volumes });
    appendFileSync(disk(from), 'what the guest wrote');
    const job = join(from.dir, 'machines', ID, 'jobs', JOB);
    mkdirSync(job, { recursive: true });
    const report = {
      ...{
        job_id: JOB,
        machine_id: ID,
        status: 'exited',
        exit_code: 0,
        signal: null,
        stdout_bytes: 5,
        stderr_bytes: 0,
      },
      ...{ truncated: false, finished_at: '2026-01-01T00:00:00.000Z', output_expired: false },
    };
    writeFileSync(join(job, 'job.json'), JSON.stringify(report));
    writeFileSync(join(job, 'stdout'), 'hello');
  });
  after(() => {
    for (const one of used) one.remove();
  });
  const disk = (host: FakeHost) => join(host.dir, 'machines', ID, 'disk.qcow2');
  const send = () => from.machineCopies.send(ID);
  const receive = (generation: number, stream: AsyncIterable<Buffer>) =>
    to.machineCopies.receive(ID, generation, streamOf(stream));
  const isCode = (code: string) => (error: unknown) => error instanceof ServiceError && error.code === code;

  it('has its disk, its volumes and the output of its jobs, and starts there', async () => {
    const sum = sha256Of(disk(from));
    const report = await receive(3, await send());
    assert.deepEqual([report.status, report.generation], ['stopped', 3]);
    assert.notEqual(report.private_ip, SPEC.private_ip, 'the address is one of the new host');
    assert.equal(sha256Of(disk(to)), sum);
    const record = readMachineRecord(join(to.dir, 'machines', ID));
    assert.equal(record?.image.rootfsPath, join(to.dir, 'rootfs.img'));
    assert.deepEqual(record?.volumes, [{ volumeId: VOLUME, slot: 0, path: '/data', isMounted: false }]);
    const page = await (await to.registry.get(ID).job(JOB)).readOutput('stdout', 0, 100, 0);
    assert.equal(String(page.data), 'hello');
    await from.machineCopies.remove(ID, 3);
    assert.ok(!existsSync(disk(from)));
    assert.ok(from.dataVolumes.has(VOLUME), 'volumes are removed on their own');
    await to.dataVolumes.ensure(VOLUME, 1);
    await to.start();
    const { private_ip: _, ...spec } = SPEC;
    const volumes = [{ volume_id: VOLUME, mount_path: '/data' }];
    const started = await to.registry.ensure(ID, { generation: 4, desired: 'running', spec, volumes });
    assert.deepEqual([started.status, started.private_ip], ['running', report.private_ip]);
  });

  it('has the hostname and the system id that it got with its clone, and an older agent refuses it', async () => {
    const path = join(from.dir, 'machines', ID, RECORD);
    const record = readMachineRecord(join(from.dir, 'machines', ID)) ?? assert.fail('no record');
    const systemId = '11111111-2222-4333-8444-555555555555';
    writeRecordDurably(path, { ...record, systemId, spec: { ...record.spec, hostname: 'm-leased' } });
    await from.start();
    const chunks: Buffer[] = [];
    for await (const chunk of await send()) chunks.push(chunk);
    const start = Buffer.concat(chunks).subarray(0, 4096).toString('latin1');
    assert.match(start, /"version":3\b/, 'a version that an agent without system ids does not know');
    await receive(3, Readable.from(chunks));
    const moved = readMachineRecord(join(to.dir, 'machines', ID));
    assert.deepEqual([moved?.systemId, moved?.spec.hostname], [systemId, 'm-leased']);
  });

  it('that was cut off or damaged leaves nothing, and can be sent again (CTL-14)', async () => {
    let count = 0;
    for await (const _ of await send()) count++;
    for (let at = 1; at < count; at++) {
      const cut = changed(await send(), (piece, index) => (index === at ? undefined : piece));
      await assert.rejects(receive(3, cut), isCode('host_unavailable'), `cut off at piece ${at}`);
      assert.deepEqual(readdirSync(join(to.dir, 'machines')), []);
    }
    await receive(3, await send());
    assert.equal((await receive(3, await send())).generation, 3, 'a repetition');
    await assert.rejects(receive(2, await send()), isCode('conflict'));
  });

  it('is refused while the machine runs, and breaks off when it changes meanwhile', async () => {
    const stream = await send();
    await from.registry.ensure(ID, { generation: 3, desired: 'running', spec: SPEC });
    await assert.rejects(receive(3, stream), isCode('host_unavailable'));
    assert.deepEqual(readdirSync(join(to.dir, 'machines')), []);
    await assert.rejects(send(), isCode('conflict'));
  });

  it('does not come back after its removal, and a late removal does not harm a newer one', async () => {
    await receive(3, await send());
    await to.machineCopies.remove(ID, 3);
    await assert.rejects(receive(3, await send()), isCode('conflict'));
    await receive(4, await send());
    await assert.rejects(to.machineCopies.remove(ID, 3), isCode('conflict'));
    assert.ok(to.registry.has(ID));
    assert.equal(readFileSync(join(to.dir, 'machines', ID, 'jobs', JOB, 'stdout'), 'utf8'), 'hello');
  });
});
