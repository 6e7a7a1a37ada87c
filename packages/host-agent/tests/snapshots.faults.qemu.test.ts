// Tests snapshots of a real machine when the agent is killed during a snapshot, and when the host's disk is full. Needs
// root and the base image.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { closeSync, existsSync, mkdtempSync, openSync, readdirSync, readFileSync, rmSync, writeSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import type { HostSnapshot } from '@sandbar/contract/host-api.ts';
import { AgentProcess } from './support/agent-process.ts';

const ID = '019a0000-0000-7000-8000-00000000000a';
const snapshotId = (number: number) => `019a0000-0000-7000-8000-0000000001${String(number).padStart(2, '0')}`;
const GENERATION = 1_000_000;
const PAGE = 4096;

describe('snapshots of real machines when things go wrong', {
  skip: process.getuid?.() !== 0,
  timeout: 300_000,
}, () => {
  const folder = mkdtempSync(join(tmpdir(), 'sandbar-faults-'));
  let agent: AgentProcess;
  before(async () => {
    execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=300m', 'tmpfs', folder]);
    agent = new AgentProcess({}, folder);
    await agent.start();
    await agent.run(ID);
  });
  after(async () => {
    await agent.close();
    execFileSync('umount', [folder]);
    rmSync(folder, { recursive: true });
  });

  const take = (number: number) =>
    agent.call<HostSnapshot>('PUT', `/v1/machines/${ID}/snapshots/${snapshotId(number)}`, {
      generation: GENERATION,
      memory: false,
    });
  const machineDir = () => join(agent.paths.machines, ID);
  const record = () => JSON.parse(readFileSync(join(machineDir(), 'machine.json'), 'utf8'));
  const isTrue = (look: () => boolean) => {
    try {
      return look();
    } catch {
      // `look` reads a file that is being replaced at this moment.
      return false;
    }
  };
  /** Writes a file in the guest, durably, and counts the files written so far. */
  let written = 0;
  const write = async () => {
    written++;
    await agent.exec(ID, `echo ${written} > /root/${written} && sync`);
  };
  const checkFiles = async () => {
    await agent.exec(ID, 'echo 3 > /proc/sys/vm/drop_caches');
    const expected = Array.from({ length: written }, (_, index) => `${index + 1}\n`).join('');
    assert.equal(await agent.exec(ID, `cd /root; for n in $(seq ${written}); do cat $n; done`), expected);
  };

  it('kill -9 of the agent at each stage: another one ends it, the machine writes on, nothing is lost or left (CTL-2, CTL-3)', async () => {
    let layers = 0;
    const stages: Record<string, () => boolean> = {
      'the overlay is there': () => existsSync(join(machineDir(), 'next.qcow2')),
      'the freeze is noted': () => record().freezing !== null,
      'the layer is there': () => readdirSync(agent.paths.layers).length > layers,
      'the layer is recorded': () => record().layers.length > layers,
    };
    for (const [number, [stage, isReached]] of Object.entries(stages).entries()) {
      await write();
      layers = record().layers.length;
      const taking = take(number).catch(() => undefined);
      let isAnswered = false;
      void taking.then(() => {
        isAnswered = true;
      });
      while (!isAnswered && !isTrue(isReached)) await new Promise((resolve) => setImmediate(resolve));
      await agent.kill();
      await taking;
      await agent.start();
      assert.equal((await agent.statusOf(ID)).status, 'running', stage);
      assert.equal(record().freezing, null, stage);
      await write();
      await checkFiles();
      assert.equal((await take(number)).status, 200, stage);
      assert.deepEqual(await agent.findings(), [], stage);
    }
    // Start the machine again, which works only if its files are where its record says.
    await agent.stop(ID);
    await agent.run(ID);
    await checkFiles();
  });

  it('a full or nearly full disk gives 503 at once, the machine keeps running, and everything works once there is space', async () => {
    for (const [number, pages] of [0, 8, 500].entries()) {
      await write();
      const filler = fill(folder, pages);
      const { status, body } = await take(20 + number);
      rmSync(filler);
      assert.deepEqual([status, body.code], [503, 'fleet_capacity'], JSON.stringify(body));
      assert.equal((await agent.statusOf(ID)).status, 'running');
      await write();
      assert.equal((await take(20 + number)).status, 200);
      await checkFiles();
    }
    assert.deepEqual(await agent.findings(), []);
    await agent.stop(ID);
    await agent.run(ID);
    await checkFiles();
  });
});

/** Fills the file system except for the given number of pages. Returns the path of the file that does so. */
function fill(folder: string, pagesLeft: number): string {
  const path = join(folder, 'filler');
  const fd = openSync(path, 'w');
  const chunk = Buffer.alloc(1024 * 1024, 1);
  for (let bytes = chunk.length; bytes >= PAGE; ) {
    try {
      if (writeSync(fd, chunk, 0, bytes) < bytes) bytes /= 2;
    } catch {
      bytes /= 2;
    }
  }
  closeSync(fd);
  execFileSync('truncate', ['-s', `-${pagesLeft * PAGE}`, path]);
  return path;
}
