// Tests memory snapshots of real machines: processes continue in every machine made from a snapshot, and each machine
// has its own identity. The agent runs as a separate process. Needs root and the base image.
import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import type { HostSnapshot, JobReport, MachineReport } from '@sandbar/contract/host-api.ts';
import { AgentProcess } from './support/agent-process.ts';

const MIB = 1024 ** 2;
const MEMORY_MB = 256;
const idOf = (number: number) => `019a0000-0000-7000-8000-0000000000${number.toString(16).padStart(2, '0')}`;
const snapshotId = (number: number) => `019a0000-0000-7000-8000-0000000001${number.toString(16).padStart(2, '0')}`;

/** Draws random numbers in a loop, and writes each with the name of the machine. */
const DRAWER = `
import os,time
f=open("/dev/shm/draws","w")
while True:
  f.write(os.urandom(8).hex()+" "+open("/proc/sys/kernel/hostname").read()); f.flush(); time.sleep(0.001)
`;
/**
 * Writes numbered blocks with checksums, each with fsync, to a file that it opened once. Prints the number it has in
 * memory.
 */
const WRITER = `
import os,hashlib,time
f=os.open("/root/blocks",os.O_WRONLY|os.O_CREAT)
n=0
while True:
  body=(str(n+1)+" ").encode()+os.urandom(200).hex().encode()
  os.write(f,body+b" "+hashlib.sha256(body).hexdigest().encode()+b"\\n"); os.fsync(f); n+=1
  m=open("/dev/shm/n.new","w"); m.write(str(n)); m.close(); os.rename("/dev/shm/n.new","/dev/shm/n")
`;
/** Reads the blocks back from disk. Prints the last number if all blocks are complete and in order. */
const READER = `
import hashlib,os,subprocess
os.sync(); open("/proc/sys/vm/drop_caches","w").write("3")
last=0
for line in open("/root/blocks","rb").read().split(b"\\n")[:-1]:
  body,s=line.rsplit(b" ",1)
  assert hashlib.sha256(body).hexdigest().encode()==s, line
  assert int(body.split(b" ")[0])==last+1, (line,last)
  last+=1
print(last)
`;

describe('memory snapshots of real machines', { skip: process.getuid?.() !== 0 }, () => {
  const agent = new AgentProcess({ SANDBAR_TEMPLATES: '1' });
  let generation = 1000;
  before(() => agent.start());
  after(async () => {
    // Removes the machines of a failed test. Their generations differ from this test's counter.
    const { machines } = await agent.done<{ machines: MachineReport[] }>('GET', '/v1/machines');
    for (const { machine_id } of machines)
      await agent.done('DELETE', `/v1/machines/${machine_id}?generation=${++generation}`);
    await agent.close();
  });

  type Wish = { desired?: 'running' | 'stopped'; gb?: number; snapshot_id?: string; restore?: string };
  const ensure = (number: number, { desired = 'running', gb = 2, restore, ...from }: Wish = {}) => {
    const spec = { vcpus: 1, memory_mb: MEMORY_MB, rootfs_size_gb: gb, stack: 'base', hostname: `m${number}`, ...from };
    return agent.call<MachineReport>('PUT', `/v1/machines/${idOf(number)}`, {
      generation: ++generation,
      desired,
      spec: { ...spec, private_ip: addressOf(number) },
      ...(restore === undefined ? {} : { restore_snapshot_id: restore }),
    });
  };
  const run = async (number: number, wish: Wish = {}) => {
    const { body } = await ensure(number, wish);
    assert.equal(body.status, 'running', `${JSON.stringify(body)}\n${agent.log()}`);
  };
  const take = (machine: number, number: number) =>
    agent.done<HostSnapshot>('PUT', `/v1/machines/${idOf(machine)}/snapshots/${snapshotId(number)}`, {
      generation,
      memory: true,
    });
  const destroy = (number: number) => agent.done('DELETE', `/v1/machines/${idOf(number)}?generation=${++generation}`);
  const exec = (number: number, command: string) => agent.exec(idOf(number), command);
  const python = (number: number, program: string) => exec(number, `python3 - <<'END'\n${program}END`);
  /** Starts a program that continues to run after its job has ended. */
  const leave = (number: number, program: string) =>
    exec(
      number,
      `cat > /root/left.py <<'END'\n${program}END\npython3 /root/left.py > /dev/null 2>&1 & echo $! > /root/left.pid`,
    );
  const signal = (number: number, name: 'STOP' | 'CONT' | 'KILL') =>
    exec(number, `kill -${name} $(cat /root/left.pid)`);
  const addressOf = (number: number) => {
    const subnet = /"subnet":"(\d+\.\d+)\./.exec(readFileSync(agent.paths.hostState, 'utf8'))?.[1];
    return `${subnet}.0.${10 + number}`;
  };
  const until = async (what: string, isTrue: () => boolean | Promise<boolean>) => {
    for (const deadline = Date.now() + 60_000; !(await isTrue()); await delay(20))
      assert.ok(Date.now() < deadline, `${what}\n${agent.log()}`);
  };
  const numberOf = async (number: number) => Number(await exec(number, 'cat /dev/shm/n 2>/dev/null || echo 0'));
  const goesOn = async (number: number) => {
    const before = await numberOf(number);
    await until('it writes on', async () => (await numberOf(number)) > before + 2);
  };
  const drawsOf = async (machine: number) => {
    const lines = (await exec(machine, 'cat /dev/shm/draws 2>/dev/null || true')).split('\n').slice(0, -1);
    return lines.map((line) => line.split(' ')).map(([number = '', hostname = '']) => ({ number, hostname }));
  };
  type Draw = { number: string; hostname: string };
  const drawnAlike = (a: Draw[], b: Draw[]) => {
    const at = a.findIndex(({ number }, index) => number !== b[index]?.number);
    return at < 0 ? a.length : at;
  };
  const usedBytes = (path: string) => (statSync(path, { throwIfNoEntry: false })?.blocks ?? 0) * 512;
  const snapshotDir = (number: number) => join(agent.paths.snapshots, snapshotId(number));

  it('a process with open files goes on in two machines; what it has in memory is what is on the disk (CLN-4)', async () => {
    await run(1);
    await leave(1, WRITER);
    await until('it writes', async () => (await numberOf(1)) > 5);
    const least = await numberOf(1);
    const { kind, size_gb, stored_bytes } = await take(1, 1);
    assert.deepEqual([kind, size_gb], ['memory', 2]);
    for (const number of [2, 3]) await run(number, { snapshot_id: snapshotId(1) });
    for (const number of [1, 2, 3]) await goesOn(number);
    for (const number of [1, 2, 3]) {
      await signal(number, 'STOP');
      const inMemory = await numberOf(number);
      const onDisk = Number(await python(number, READER));
      assert.ok(inMemory >= least && (onDisk === inMemory || onDisk === inMemory + 1), `${inMemory} ${onDisk}`);
      await signal(number, 'CONT');
      await goesOn(number);
    }
    assert.ok(stored_bytes < 0.75 * MEMORY_MB * MIB, `${stored_bytes}`);
    const { size, blocks } = statSync(join(snapshotDir(1), 'memory'));
    assert.equal(size, MEMORY_MB * MIB);
    assert.ok(blocks * 512 <= stored_bytes, 'what was never touched is not stored');
    // The writers would take processor time from all later tests.
    await signal(1, 'KILL');
    for (const number of [2, 3]) await destroy(number);
  });

  it('its disk alone is whole: nothing to recover, nothing to repair (CLN-4)', () => {
    const record = JSON.parse(readFileSync(join(snapshotDir(1), 'snapshot.json'), 'utf8'));
    const folder = mkdtempSync(join(tmpdir(), 'sandbar-snapshot-'));
    try {
      const raw = join(folder, 'disk.raw');
      const file = (filename: string) => ({ driver: 'file', filename });
      let chain: object = { driver: 'raw', file: file(record.image.rootfsPath) };
      for (const id of record.layers)
        chain = { driver: 'qcow2', file: file(join(agent.paths.layers, `${id}.qcow2`)), backing: chain };
      execFileSync('qemu-img', ['convert', '-O', 'raw', `json:${JSON.stringify(chain)}`, raw], { stdio: 'pipe' });
      const superblock = execFileSync('dumpe2fs', ['-h', raw], { encoding: 'utf8', stdio: 'pipe' });
      assert.doesNotMatch(superblock, /needs_recovery/);
      execFileSync('e2fsck', ['-fn', raw], { stdio: 'pipe' });
    } finally {
      rmSync(folder, { recursive: true });
    }
  });

  it('each is itself: name, machine id, address; jobs of the one that it was are not its own (CLN-3)', async () => {
    await agent.begin(idOf(1), 'exec sleep 1000');
    await until('it sleeps', async () =>
      /sleep 1000/.test(await exec(1, 'ps -e -o args || true; pgrep -a sleep || true')),
    );
    await take(1, 2);
    for (const number of [4, 5]) await run(number, { snapshot_id: snapshotId(2), gb: number === 5 ? 3 : 2 });
    const said = new Set<string>();
    for (const number of [1, 4, 5]) {
      const [hostname, machineId, addresses] = (
        await exec(number, 'hostname; cat /etc/machine-id; ip -4 -o addr show eth0 | grep -o "inet [0-9.]*"')
      ).split('\n');
      assert.deepEqual([hostname, addresses], [`m${number}`, `inet ${addressOf(number)}`]);
      assert.equal(machineId, idOf(number).replaceAll('-', ''));
      said.add(machineId ?? '');
      const { jobs } = await agent.done<{ jobs: JobReport[] }>('GET', `/v1/machines/${idOf(number)}/jobs`);
      assert.equal(jobs.length, number === 1 ? 1 : 0);
      assert.match(await exec(number, 'pgrep -a sleep'), /sleep 1000/);
    }
    assert.equal(said.size, 3);
    const sizes = await Promise.all(
      [4, 5].map(async (number) => Number(await exec(number, "df -m / | awk 'END{print $2}'"))),
    );
    assert.ok((sizes[1] ?? 0) > (sizes[0] ?? 0) + 900, `a larger disk is grown: ${sizes}`);
    await destroy(5);
  });

  it('no process draws a random number, or sees the old name, before its machine is itself (CLN-1, CLN-2)', async () => {
    await leave(1, DRAWER);
    await until('it draws', async () => (await drawsOf(1)).length > 50);
    await take(1, 3);
    for (const number of [6, 7, 8]) await run(number, { snapshot_id: snapshotId(3) });
    for (const number of [1, 6, 7, 8]) {
      const before = (await drawsOf(number)).length;
      await until('it draws on', async () => (await drawsOf(number)).length > before + 20);
    }
    const source = await drawsOf(1);
    const draws = await Promise.all([6, 7, 8].map(drawsOf));
    const alike = draws.map((one) => drawnAlike(one, source));
    assert.equal(new Set(alike).size, 1, `all go on from one draw: ${alike}`);
    const later = draws.map((one) => one.slice(alike[0]));
    for (const [index, lines] of later.entries())
      assert.deepEqual(new Set(lines.map(({ hostname }) => hostname)), new Set([`m${6 + index}`]), 'its own name');
    const drawn = [...later.flat(), ...source.slice(alike[0])].map(({ number }) => number);
    assert.equal(new Set(drawn).size, drawn.length, 'no number was drawn twice');
    await signal(1, 'KILL');
    for (const number of [6, 7, 8]) await destroy(number);
  });

  it('a clone and a machine from a snapshot can be saved too, and boot from their disk after a stop', async () => {
    // The agent makes a template when a shape is requested for the second time within an hour.
    for (let request = 0; request < 2; request++) {
      await run(9);
      await destroy(9);
    }
    await until('a template', () => readdirSync(agent.paths.templates).some((name) => !name.startsWith('.')));
    await until('a clone', async () => {
      await destroy(9);
      await run(9);
      return vmRecordOf(9).templateKey !== null;
    });
    for (const [source, number, target] of [
      [9, 4, 10],
      [10, 5, 11],
    ] as const) {
      await leave(source, WRITER);
      await until('it writes', async () => (await numberOf(source)) > 5);
      await take(source, number);
      await signal(source, 'KILL');
      await run(target, { snapshot_id: snapshotId(number) });
      assert.equal(vmRecordOf(target).templateKey, `snapshot-${snapshotId(number)}`);
      await goesOn(target);
      await signal(target, 'KILL');
      await python(target, READER);
      await exec(target, 'rm /dev/shm/n /root/blocks');
    }
    await exec(11, 'echo kept > /root/kept; sync');
    assert.equal((await ensure(11, { desired: 'stopped', snapshot_id: snapshotId(5) })).body.status, 'stopped');
    await run(11, { snapshot_id: snapshotId(5) });
    assert.equal((await exec(11, 'cat /root/kept; pgrep python3 || echo none')).trim(), 'kept\nnone');
  });

  it('a restore returns to the disk, and the processes are gone', async () => {
    await exec(1, 'echo later > /root/later');
    await run(1, { restore: snapshotId(2) });
    assert.equal(
      (await exec(1, 'ls /root/later 2>/dev/null || echo gone; pgrep sleep || echo none')).trim(),
      'gone\nnone',
    );
  });

  it('a machine keeps what it needs when its snapshot is deleted', async () => {
    await agent.done('DELETE', `/v1/snapshots/${snapshotId(2)}`);
    assert.match(await exec(4, 'pgrep -a sleep; sha256sum /bin/* | wc -l'), /sleep 1000/);
  });

  it('an agent that is killed while it saves leaves a machine that runs, and a snapshot that is whole or not there (CTL-2)', async () => {
    await exec(1, 'rm -f /root/blocks');
    await leave(1, WRITER);
    await goesOn(1);
    const moments: [what: string, isThere: (number: number) => boolean][] = [
      ['the memory is begun', (number) => existsSync(join(snapshotDir(number), 'memory'))],
      ['it stands still', () => readdirSync(agent.runDirOf(idOf(1))).some((name) => name.startsWith('state-'))],
      ['half of the memory is copied', (number) => usedBytes(join(snapshotDir(number), 'memory')) > 40 * MIB],
      ['it runs again', (number) => existsSync(join(snapshotDir(number), 'state'))],
    ];
    for (const [round, [what, isThere]] of moments.entries()) {
      const number = 16 + round;
      const before = agent.pidOf(idOf(1));
      let isOver = false;
      const taking = take(1, number).then(
        () => true,
        () => false,
      );
      void taking.then(() => {
        isOver = true;
      });
      while (!isOver && !isThere(number)) await new Promise((resolve) => setImmediate(resolve));
      await agent.kill();
      const wasTaken = await taking;
      await agent.start();
      assert.equal(agent.pidOf(idOf(1)), before, what);
      await goesOn(1);
      const isListed = readdirSync(agent.paths.snapshots).includes(snapshotId(number));
      const names = isListed ? readdirSync(snapshotDir(number)).length : 0;
      assert.ok(names === 3 || (names === 0 && !wasTaken), `${what}: ${names}`);
      assert.equal((await take(1, number)).kind, 'memory', what);
    }
    await run(12, { snapshot_id: snapshotId(19) });
    await goesOn(12);
    await signal(12, 'KILL');
    await python(12, READER);
  });

  it('leaves nothing on the host', async () => {
    assert.deepEqual(await agent.findings(), []);
    for (const number of [1, 4, 9, 10, 11, 12]) await destroy(number);
    for (const name of readdirSync(agent.paths.snapshots)) await agent.done('DELETE', `/v1/snapshots/${name}`);
    await until('no layer is left', async () => {
      // A template based on a layer may have been made meanwhile.
      await agent.done('DELETE', `/v1/snapshots/${snapshotId(1)}`);
      return readdirSync(agent.paths.layers).length === 0;
    });
  });

  const vmRecordOf = (number: number): { templateKey: string | null } => {
    const records = readdirSync(agent.paths.runVms).map((name) =>
      JSON.parse(readFileSync(join(agent.paths.runVms, name), 'utf8')),
    );
    return records.find((one) => one.runDir === agent.runDirOf(idOf(number))) ?? assert.fail(`${number} has no VM`);
  };
});

it('an agent that may not read other processes reports that', { skip: process.getuid?.() !== 0 }, () => {
  const script = `
    import { findGuestMemory } from '${join(import.meta.dirname, '../src/hypervisor/guest-memory.ts')}';
    // Drop the privileges only after the modules are loaded, because that user may not be able to read them.
    process.setgroups([]);
    process.setgid(65534);
    process.setuid(65534);
    const info = { pid: ${process.pid}, executable: '', cwd: '', startTicks: '' };
    await findGuestMemory({}, info, 4096, false).catch((error) => console.log(error.code, error.message));`;
  const { stdout, stderr } = spawnSync(process.execPath, ['--input-type=module', '-e', script], {
    encoding: 'utf8',
  });
  assert.match(stdout, /^conflict this host does not let its agent read the memory/, stderr);
});
