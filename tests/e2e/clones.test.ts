// Many machines are cloned from one saved VM, the template. These tests check that clones differ in identity and
// randomness, that a clone contains nothing of its template or of other clones, and that a clone can do everything that
// a cold-booted machine can do.
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, it } from 'node:test';
import type { Machine } from '@sandbar/contract/machine.ts';
import { MACHINE_DEFAULTS } from '@sandbar/contract/machine-states.ts';
import { createClone, createClones, hasBareTemplate, templateOf } from './support/clones.ts';
import { IS_ROOT, run } from './support/host.ts';
import { FACTS, parseFacts, UNIQUE } from './support/identity-facts.ts';
import {
  call,
  createMachine,
  destroyMachine,
  expectStatus,
  getMachine,
  HOME,
  qemuPidOf,
  sh,
  until,
  untilItTakesJobs,
} from './support/service.ts';

const COUNT = 20;
/** Clones created in parallel: enough to keep the host busy, few enough for a small host. */
const AT_ONCE = 4;
const SMALL = { memory_mb: 256, rootfs_size_gb: 2 };

/** Names of secrets that some images create at the first boot. Each is either absent or different on every machine. */
const UNIQUE_OR_ABSENT = ['ssh-keys', 'random-seed'];

/**
 * Shell script that prints every name, address, MAC address or id of a machine that it finds in the guest's files and
 * kernel tables. Its argument is a regular expression for them. It skips the folders of the distribution's packages.
 */
const TRACES = `
{ grep -rhaoE "$0" /etc /var /run /root /home /tmp /srv /opt /dev/shm --exclude-dir=dpkg --exclude-dir=apt --exclude-dir=python3;
  { ip address; ip neigh; ip route; dmesg; cat /proc/cmdline; tr '\\0' '\\n' < /proc/1/environ; ls -a /root /tmp; } |
    sed 's/permaddr .*//' | grep -oE "$0"; } | sort -u`;

/** Shell script that lists all processes except kernel threads, as `PID COMMAND`. */
const PROCESSES = `for p in /proc/[0-9]*; do [ -s $p/cmdline ] || head -c 1 $p/cmdline 2>/dev/null | grep -q . || continue
  echo "\${p#/proc/} $(tr '\\0' ' ' < $p/cmdline | head -1 | cut -c1-40)"; done`;

describe('clones', { skip: !IS_ROOT && 'only root can see whether a machine is a clone' }, () => {
  const clones: Machine[] = [];
  after(() => Promise.all(clones.map(({ id }) => destroyMachine(id))));

  it(`${COUNT} clones differ in identity, address and randomness, and know the time (CLN-1, CLN-3)`, async () => {
    clones.push(...(await createClones(COUNT, AT_ONCE, SMALL)));
    const seen = new Map<string, Map<string, string>>();
    for (let at = 0; at < COUNT; at += AT_ONCE)
      await Promise.all(clones.slice(at, at + AT_ONCE).map(async ({ id }) => seen.set(id, await factsOf(id))));

    for (const fact of UNIQUE) {
      const values = [...seen.values()].map((facts) => facts.get(fact) ?? '');
      assert.ok(!values.includes(''), `${fact}: ${values}`);
      assert.equal(new Set(values).size, COUNT, `${fact}: ${values}`);
    }
    for (const fact of UNIQUE_OR_ABSENT) {
      const values = [...seen.values()].map((facts) => facts.get(fact) ?? '').filter((value) => value !== '');
      assert.equal(new Set(values).size, values.length, `${fact}: ${values}`);
    }
    for (const { id, private_ip } of clones) {
      const facts = seen.get(id);
      const hostname = `m-${facts?.get('machine-id')?.slice(-12)}`;
      const names = [facts?.get('hostname'), facts?.get('etc-hostname'), facts?.get('ip')];
      assert.equal(facts?.get('identity-record'), facts?.get('machine-id'));
      assert.deepEqual(names, [hostname, hostname, private_ip]);
    }
  });

  it('nothing of the template or of another machine is left in a clone, and nothing else runs (CLN-2, CLN-3)', async () => {
    for (const { id, private_ip } of clones.slice(0, AT_ONCE)) {
      const network = String(private_ip).split('.').slice(0, 2).join('\\.');
      const like = [
        'm-[0-9a-f]{12}',
        '02:5b(:[0-9a-f]{2}){4}',
        `\\b${network}\\.[0-9]+\\.[0-9]+`,
        // Machine ids are UUIDs of version 7. The kernel makes UUIDs of version 4, which are no trace of a machine.
        '[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}',
      ].join('|');
      const list = `hostname; echo --; ${PROCESSES}; echo --; set -- ; sh -c ${quote(TRACES)} ${quote(like)}`;
      const [hostname = '', processes = '', traces = ''] = (await sh(id, list)).stdout.split('--\n');
      const own = [
        hostname.trim(),
        String(private_ip),
        macOf(String(private_ip)),
        id,
        gatewayOf(private_ip),
        broadcastOf(private_ip),
        networkOf(private_ip),
      ];
      assert.deepEqual(
        traces
          .trim()
          .split('\n')
          .filter((trace) => !own.includes(trace)),
        [],
        `${id} has traces of other machines`,
      );
      // Check that the search works: it must find the machine's own name, address and MAC address.
      for (const mine of own.slice(0, 3)) assert.ok(traces.includes(mine), `${mine} in ${traces}`);
      const others = processes
        .trim()
        .split('\n')
        .filter((line) => !/^1 \/init/.test(line));
      assert.match(processes, /^1 \/init/m);
      assert.ok(
        others.every((line) => /^\d+ (\/bin\/sh -c|sh -c|tr |cut )/.test(line)),
        processes,
      );
    }
  });

  it('no clone sees what another clone writes to memory or disk', async () => {
    const [writer, ...others] = clones.slice(0, 4);
    assert.ok(writer);
    const secret = `secret-${writer.id}`;
    await sh(writer.id, `echo ${secret} > /root/secret; echo ${secret} > /dev/shm/secret; sync`);
    const isOnDiskOf = (id: string) =>
      run('grep', ['-qa', secret, join(HOME, 'machines', id, 'disk.qcow2')]).status === 0;
    assert.equal(isOnDiskOf(writer.id), true, 'grep finds the secret on the disk of the clone that wrote it');
    for (const { id } of others) {
      assert.equal((await sh(id, 'ls /root/secret /dev/shm/secret 2>/dev/null')).stdout, '');
      await sh(id, 'echo 3 > /proc/sys/vm/drop_caches; find / -xdev > /dev/null; sync');
      assert.equal(isOnDiskOf(id), false);
    }
  });

  it('the disks of ten clones that wrote pass fsck (CLN-4)', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'sandbar-fsck-'));
    try {
      for (const { id } of clones.slice(0, 10)) {
        await sh(id, 'for i in 1 2 3 4 5 6 7 8; do head -c 300000 /dev/urandom > /root/file-$i; done; rm /root/file-3');
        await expectStatus(200, 'POST', `/v1/machines/${id}/stop`);
        const raw = join(folder, 'disk.raw');
        const disk = join(HOME, 'machines', id, 'disk.qcow2');
        const converted = run('qemu-img', ['convert', '-f', 'qcow2', '-O', 'raw', disk, raw]);
        assert.equal(converted.status, 0, converted.stderr);
        const checked = run('e2fsck', ['-fn', raw]);
        assert.equal(checked.status, 0, `${id}: ${checked.stdout}${checked.stderr}`);
        assert.doesNotMatch(checked.stdout, /recover|Fix/i);
      }
    } finally {
      rmSync(folder, { recursive: true });
    }
  });
});

describe('shapes of clones', { skip: !IS_ROOT }, () => {
  for (const [shape, cores, leastMb, mostMb] of [
    [{ vcpus: 2, memory_mb: 512, rootfs_size_gb: 2 }, 2, 430, 512],
    [{ memory_mb: 1024, rootfs_size_gb: 12 }, 1, 900, 1024],
  ] as const) {
    it(`${JSON.stringify(shape)}: a clone has this size from its first command on`, async () => {
      const clone = await createClone(shape);
      try {
        const ask = `nproc; awk '/MemTotal/ {print int($2/1024)}' /proc/meminfo; df -BM --output=size / | tail -1`;
        const [nproc, memory, disk] = (await sh(clone.id, ask)).stdout
          .trim()
          .split('\n')
          .map((line) => Number.parseInt(line, 10));
        assert.equal(nproc, cores);
        assert.ok(Number(memory) > leastMb && Number(memory) <= mostMb, `memory ${memory}`);
        const wantedMb = shape.rootfs_size_gb * 1024;
        assert.ok(Number(disk) > wantedMb * 0.93 && Number(disk) <= wantedMb, `disk ${disk}`);
      } finally {
        await destroyMachine(clone.id);
      }
    });
  }

  it('a clone can use all of its memory, also when it is the first that uses so much (ISO-6)', async () => {
    const machine = await createClone({ ...SMALL, memory_mb: 768 });
    const { code, stdout } = await sh(machine.id, `python3 -c 'memory = b"x" * (600 << 20); print(len(memory) >> 20)'`);
    assert.deepEqual([code, stdout], [0, '600\n']);
    await destroyMachine(machine.id);
  });

  it('a clone keeps its files when it is stopped and started, and when the guest reboots itself', async () => {
    const clone = await createClone(SMALL);
    try {
      await sh(clone.id, 'echo stop > /root/kept');
      await expectStatus(200, 'POST', `/v1/machines/${clone.id}/stop`);
      await expectStatus(200, 'POST', `/v1/machines/${clone.id}/start`);
      assert.equal((await sh(clone.id, 'cat /root/kept')).stdout, 'stop\n');
    } finally {
      await destroyMachine(clone.id);
    }

    const rebooted = await createClone(SMALL);
    try {
      await sh(rebooted.id, 'echo reboot > /root/kept; sync');
      const names = 'hostname; cat /etc/hostname /etc/machine-id; ls -i /etc/ssh/ssh_host_* 2>/dev/null';
      const namesBefore = (await sh(rebooted.id, names)).stdout;
      const vm = qemuPidOf(rebooted.id);
      await call('POST', `/v1/machines/${rebooted.id}/execs`, {
        argv: ['python3', '-c', 'import ctypes; ctypes.CDLL(None).reboot(0x1234567)'],
      });
      await until('a new VM', () => qemuPidOf(rebooted.id) !== vm);
      // The API reports `running` during the whole reboot. Jobs are refused until the new VM has its identity.
      await untilItTakesJobs(rebooted.id);
      assert.equal((await getMachine(rebooted.id)).state, 'running');
      assert.equal((await sh(rebooted.id, 'cat /root/kept')).stdout, 'reboot\n');
      assert.equal((await sh(rebooted.id, names)).stdout, namesBefore);
    } finally {
      await destroyMachine(rebooted.id);
    }
  });

  it('a machine on a disk that was used before is a clone too: started again, made from a snapshot, made from a kept disk (CLN-1, CLN-2, CLN-3)', async () => {
    // The service makes the bare template of the default size when it starts.
    const size = { memory_mb: MACHINE_DEFAULTS.memory_mb, rootfs_size_gb: 2 };
    await until('the bare template', () => hasBareTemplate(), 120_000);
    const first = await createMachine(size);
    const machines = [first];
    const seen: Map<string, string>[] = [];
    const check = async ({ id }: Machine, name: string) => {
      assert.ok(templateOf(id)?.isBare, `${name}: not from the bare template`);
      const facts = await factsOf(id);
      // A machine that starts again keeps its names. A new one that takes no clone of the pool gets those of its id.
      const machineId = id === first.id ? seen[0]?.get('machine-id') : id.replaceAll('-', '');
      assert.equal(facts.get('machine-id'), machineId, name);
      assert.equal(facts.get('hostname'), `m-${machineId?.slice(-12)}`, name);
      seen.push(facts);
      const { stdout } = await sh(id, 'cat /root/kept; echo $(($(cat /sys/class/block/vda/size) / 2097152))');
      assert.equal(stdout, `kept\n${name === 'from a kept disk' ? 3 : 2}\n`, name);
    };
    try {
      seen.push(await factsOf(first.id));
      await sh(first.id, 'echo kept > /root/kept');
      const snapshot = await expectStatus<{ id: string }>(201, 'POST', `/v1/machines/${first.id}/snapshots`, {});
      await expectStatus(200, 'POST', `/v1/machines/${first.id}/stop`);
      await expectStatus(200, 'POST', `/v1/machines/${first.id}/start`);
      await check(first, 'started again');
      machines.push(await expectStatus(201, 'POST', '/v1/machines', { ...size, snapshot_id: snapshot.id }));
      await check(machines.at(-1) ?? first, 'from a snapshot');
      const volumeId = (
        await expectStatus<Machine>(
          200,
          'DELETE',
          `/v1/machines/${first.id}?preserve_storage=true&delete_snapshots=true`,
        )
      ).root_volume_id;
      const body = { ...size, rootfs_size_gb: 3, root_volume_id: volumeId };
      machines.push(await expectStatus(201, 'POST', '/v1/machines', body));
      await check(machines.at(-1) ?? first, 'from a kept disk');
      for (const fact of ['boot-id', 'urandom', 'getrandom'])
        assert.equal(new Set(seen.map((facts) => facts.get(fact))).size, 4, fact);
    } finally {
      for (const { id } of machines) await destroyMachine(id);
    }
  });

  it('machines of equal vCPUs and memory can have different disk sizes, right from their first command', async () => {
    const sizes = await Promise.all(
      [2, 3, 4, 5, 6, 7].map((rootfs_size_gb) => createMachine({ ...SMALL, rootfs_size_gb })),
    );
    try {
      for (const { id, rootfs_size_gb } of sizes) {
        const { stdout } = await sh(id, 'df -BM --output=size / | tail -1');
        const mb = Number.parseInt(stdout, 10);
        assert.ok(mb > rootfs_size_gb * 1024 * 0.93 && mb <= rootfs_size_gb * 1024, `${rootfs_size_gb} GB: ${mb}`);
      }
    } finally {
      await Promise.all(sizes.map(({ id }) => destroyMachine(id)));
    }
  });
});

/** Runs `FACTS` in the machine, returns the values by name, and checks that its clock is within 2 s of the host's. */
async function factsOf(id: string): Promise<Map<string, string>> {
  const before = Date.now();
  const { stdout, stderr } = await sh(id, FACTS);
  const after = Date.now();
  const facts = parseFacts(stdout);
  const clock = Number(facts.get('clock'));
  assert.ok(clock > before - 2000 && clock < after + 2000, `clock ${clock}, host ${before} to ${after}: ${stderr}`);
  return facts;
}

function quote(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`;
}

function macOf(ip: string): string {
  return `02:5b${ip
    .split('.')
    .map((octet) => `:${Number(octet).toString(16).padStart(2, '0')}`)
    .join('')}`;
}

const networkOf = (ip: string | null) => String(ip).replace(/\.\d+\.\d+$/, '.0.0');
const gatewayOf = (ip: string | null) => String(ip).replace(/\.\d+\.\d+$/, '.0.1');
const broadcastOf = (ip: string | null) => String(ip).replace(/\.\d+\.\d+$/, '.255.255');
