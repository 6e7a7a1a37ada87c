// Tests guests of a real QEMU that fill the host's small disk: through their root disk, through a volume, and by
// allocating a whole volume at once. The guests must be paused before they use up the disk reserve, the service must go
// on, and the guests must lose nothing. Needs root and the base image.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { mkdirSync, mkdtempSync, rmSync, statfsSync, truncateSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import type { HostInfo } from '@sandbar/contract/host-api.ts';
import { AgentProcess } from './support/agent-process.ts';

const A = '019a0000-0000-7000-8000-00000000000a';
const B = '019a0000-0000-7000-8000-00000000000b';
const VOLUME = '019a0000-0000-7000-8000-0000000000d0';
const MIB = 1024 ** 2;
const SIZE_MIB = 512;
const RESERVE_MIB = 128;

describe('guests and the reserve of the disk', { skip: process.getuid?.() !== 0, timeout: 300_000 }, () => {
  const folder = mkdtempSync(join(tmpdir(), 'sandbar-reserve-'));
  const image = join(folder, 'image');
  const disk = join(folder, 'disk');
  const filler = join(disk, 'filler');
  let agent: AgentProcess;
  before(async () => {
    // Use ext4 and not tmpfs, because the control group of a VM would count what its guest writes to a tmpfs as memory.
    mkdirSync(disk);
    writeFileSync(image, '');
    truncateSync(image, SIZE_MIB * MIB);
    execFileSync('mkfs.ext4', ['-q', '-m', '0', image], { env: { PATH: '/usr/sbin:/sbin:/usr/bin:/bin' } });
    execFileSync('mount', ['-o', 'loop', image, disk]);
    agent = new AgentProcess({ SANDBAR_DISK_RESERVE_MB: String(RESERVE_MIB) }, disk);
    await agent.start();
    await agent.done('PUT', `/v1/volumes/${VOLUME}`, { size_gb: 5 });
    await agent.run(A, [{ volume_id: VOLUME, mount_path: '/data' }]);
    await agent.run(B);
  });
  after(async () => {
    rmSync(filler, { force: true });
    await agent.close();
    execFileSync('umount', [disk]);
    rmSync(folder, { recursive: true });
  });

  const freeMb = async () => (await agent.done<HostInfo>('GET', '/v1/host')).disk.free_mb;
  const isRefused = async () => {
    const path = `/v1/volumes/${randomUUID()}`;
    const { status } = await agent.call('PUT', path, { size_gb: 5 });
    if (status !== 503) await agent.done('DELETE', path);
    return status === 503;
  };
  const until = async (what: string, isTrue: () => boolean | Promise<boolean>) => {
    for (let tries = 0; !(await isTrue()); tries++) {
      assert.ok(tries < 600, `${what}\n${agent.log()}`);
      await delay(100);
    }
  };
  /** Waits until no guest writes any more, that is, until the free space stays the same for a second. */
  const standsStill = async () => {
    await until('the disk is short', isRefused);
    let last = -1;
    await until('the guests stand still', async () => {
      const now = statfsSync(disk).bavail;
      const isSame = now === last;
      last = now;
      await delay(900);
      return isSame;
    });
  };
  const reserveIsThere = async () =>
    assert.ok((await freeMb()) > RESERVE_MIB * 0.6, `${await freeMb()} MiB are left of the reserve`);
  /** Leaves the guests `mib` MiB above the reserve. A filler file takes the rest, as another user of the disk would. */
  const leave = async (mib: number) => {
    rmSync(filler, { force: true });
    await until('all is free', async () => !(await isShort()));
    writeFileSync(filler, Buffer.alloc(Math.max(0, (await freeMb()) - RESERVE_MIB - mib) * MIB));
  };
  const isShort = async () => (await freeMb()) < RESERVE_MIB + RESERVE_MIB / 8;
  const serviceCanWrite = async (mib: number) => {
    for (let written = 0; written < mib; written += 4) {
      await until('there is room for the service', () => statfsSync(disk).bavail * statfsSync(disk).bsize > 4 * MIB);
      writeFileSync(join(disk, `database-${written}`), Buffer.alloc(4 * MIB));
    }
    for (let written = 0; written < mib; written += 4) rmSync(join(disk, `database-${written}`));
  };
  const CONTENT = 'yes 0123456789abcdef | head -c 100M';

  it('a guest that fills its volume stands still at the reserve, and goes on without loss (RES-1)', async () => {
    await leave(40);
    const written = agent.exec(A, `${CONTENT} > /data/big && sync /data/big && ${CONTENT} | cmp - /data/big`);
    await standsStill();
    await reserveIsThere();
    assert.equal((await agent.statusOf(A)).status, 'running');
    await serviceCanWrite(64);
    const job = { command: 'true', timeout_sec: 5, generation: 99 };
    const refused = await agent.call<object>('PUT', `/v1/machines/${B}/jobs/${VOLUME}`, job);
    assert.deepEqual([refused.status, refused.body.code], [503, 'fleet_capacity']);
    rmSync(filler);
    await written;
    await agent.exec(B, 'true');
  });

  it('guests are held over a restart of the agent, and the next one lets them go on (RES-1)', async () => {
    await leave(20);
    const path = `/v1/machines/${A}/jobs/019a0000-0000-7000-8000-0000000000e1`;
    const { generation } = await agent.statusOf(A);
    await agent.done('PUT', path, {
      command: `${CONTENT} > /root-file; sync; echo done`,
      timeout_sec: 600,
      generation,
    });
    await standsStill();
    await reserveIsThere();
    await agent.kill();
    await agent.start();
    await standsStill();
    await reserveIsThere();
    rmSync(filler);
    await until('it is done', async () => (await agent.done<{ status: string }>('GET', path)).status === 'exited');
    assert.match(await agent.exec(A, 'stat -c %s /root-file'), /^104857600/);
    await agent.exec(A, 'rm /root-file; sync; fstrim / || true');
  });

  it('a guest that allocates its whole volume at once meets the wall, and the service can write on (RES-1)', async () => {
    await leave(60);
    // blkdiscard -z demands zeros that are not holes, so the host allocates all blocks at once, without writing them.
    void agent.exec(A, 'umount /data; blkdiscard -z $(ls /dev/sd? | head -1)').catch(() => {});
    await standsStill();
    await serviceCanWrite(64);
    assert.equal((await agent.statusOf(A)).status, 'running');
    rmSync(filler);
    truncateSync(join(agent.paths.volumes, VOLUME, 'data.raw'), 0);
    truncateSync(join(agent.paths.volumes, VOLUME, 'data.raw'), 5 * 1024 * MIB);
    await agent.exec(B, 'true');
  });
});
