// Tests of the rule that chooses a host, as a pure function.
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { type Candidate, chooseHost, type PlacementRequest } from '../src/hosts/placement.ts';
import { NO_ROOM } from '../src/hosts/room.ts';

const OVERCOMMIT = { memory: 2, vcpus: 4, disk: 2 };
const REQUEST: PlacementRequest = { room: { memoryMb: 1024, vcpus: 1, diskGb: 10 }, stack: 'base' };

const image = (stack: string): Candidate['images'][number] => ({
  ...{ stack, description: '', digest: '', architecture: 'x86_64', min_rootfs_gb: 2, default: true },
  created_at: '2026-01-01T00:00:00.000Z',
});

/** A host with 16 cores, 64 GiB of memory and 1,000 GiB of disk, unless it says otherwise. */
const hostOf = (id: string, facts: Partial<Candidate> = {}): Candidate => ({
  ...{ id, cpus: 16, memory_mb: 65_536, disk_mb: 1_024_000, disk_free_mb: 1_024_000, disk_reserve_mb: 0 },
  ...{ reserved_memory_mb: 0, reserved_vcpus: 0, reserved_disk_gb: 0 },
  ...{ images: [image('base')], templates: [], draining: false, isRefusing: false },
  ...facts,
});

/** Random numbers that are the same in every run (Park and Miller). */
function numbers(seed = 1): () => number {
  let state = seed;
  return () => {
    state = (state * 16_807) % 2_147_483_647;
    return state / 2_147_483_647;
  };
}

const choose = (hosts: readonly Candidate[], request = REQUEST, random = numbers()) =>
  chooseHost(hosts, request, OVERCOMMIT, random)?.id;

describe('the host of a new machine', () => {
  it('has room in all three resources, over-committed, and room for the machine alone', () => {
    const full: Record<string, Partial<Candidate>> = {
      memory: { reserved_memory_mb: 2 * 65_536 - 1_023 },
      vcpus: { reserved_vcpus: 4 * 16 },
      disk: { reserved_disk_gb: 2 * 1_000 - 9 },
      'disk at its reserve': { disk_free_mb: 5_000, disk_reserve_mb: 5_000 },
      'smaller than the machine': { memory_mb: 1_023 },
    };
    for (const [what, facts] of Object.entries(full)) {
      assert.equal(choose([hostOf('full', facts)]), undefined, what);
      assert.equal(choose([hostOf('full', facts), hostOf('free')]), 'free', what);
    }
    assert.equal(choose([hostOf('last', { reserved_memory_mb: 2 * 65_536 - 1_024 })]), 'last');
  });

  it('takes new machines, and has not just refused one', () => {
    assert.equal(choose([hostOf('a', { draining: true }), hostOf('b', { isRefusing: true })]), undefined);
    assert.equal(choose([hostOf('a', { draining: true }), hostOf('c')]), 'c');
  });

  it('is one that may be used, and only hosts that are looked at are asked for that', () => {
    const hosts = Array.from({ length: 1_000 }, (_, index) => hostOf(`host-${index}`));
    let asked = 0;
    const mayUse = ({ id }: Candidate) => {
      asked++;
      return id.endsWith('7');
    };
    const host = chooseHost(hosts, REQUEST, OVERCOMMIT, numbers(), mayUse);
    assert.match(host?.id ?? '', /7$/);
    assert(asked < 500, `${asked} hosts were asked`);
    assert.equal(
      chooseHost(hosts, REQUEST, OVERCOMMIT, numbers(), () => false),
      undefined,
    );
  });

  it('has the image, if the machine needs one', () => {
    const hosts = [hostOf('node', { images: [image('node')] }), hostOf('base', { reserved_vcpus: 60 })];
    assert.equal(choose(hosts), 'base');
    assert.equal(choose(hosts, { ...REQUEST, stack: undefined }), 'node');
    assert.equal(choose(hosts, { ...REQUEST, stack: 'python' }), undefined);
  });

  it('is the least full one of a few hosts, by the resource of which most is reserved', () => {
    const hosts = [
      hostOf('memory', { reserved_memory_mb: 65_536 }),
      hostOf('vcpus', { reserved_vcpus: 20 }),
      hostOf('disk', { reserved_disk_gb: 1_500 }),
    ];
    assert.equal(choose(hosts), 'vcpus');
    // A machine that needs no new disk may be on a host with little disk left.
    assert.equal(choose(hosts, { ...REQUEST, room: { ...REQUEST.room, diskGb: 0 } }), 'disk');
  });

  it('is found among a thousand when it is the only one with room', () => {
    const hosts = Array.from({ length: 1_000 }, (_, index) =>
      hostOf(`${index}`, index === 617 ? {} : { reserved_vcpus: 64 }),
    );
    for (let seed = 1; seed < 20; seed++) assert.equal(choose(hosts, REQUEST, numbers(seed)), '617');
  });

  it('is another one for most of many parallel requests, which all see the same facts', () => {
    const hosts = Array.from({ length: 1_000 }, (_, index) => hostOf(`${index}`, { reserved_vcpus: index % 32 }));
    const random = numbers();
    const chosen = new Map<string | undefined, number>();
    for (let request = 0; request < 100; request++) {
      const id = choose(hosts, REQUEST, random);
      chosen.set(id, (chosen.get(id) ?? 0) + 1);
    }
    assert(Math.max(...chosen.values()) <= 4, 'no host is chosen by many');
    assert(chosen.size > 70, `${chosen.size} hosts are chosen`);
  });

  it('has a template of its shape, as long as it is not a quarter fuller than others', () => {
    const templates = [{ stack: 'base', vcpus: 1, memory_mb: 1024 }];
    const others = Array.from({ length: 500 }, (_, index) => hostOf(`${index}`, { reserved_vcpus: 16 }));
    const prepared = (reserved_vcpus: number) => hostOf('prepared', { templates, reserved_vcpus });
    for (let seed = 1; seed < 20; seed++) {
      assert.equal(choose([...others, prepared(31)], REQUEST, numbers(seed)), 'prepared');
      assert.notEqual(choose([...others, prepared(33)], REQUEST, numbers(seed)), 'prepared');
    }
    const other: PlacementRequest = { ...REQUEST, room: { ...REQUEST.room, memoryMb: 2048 } };
    assert.notEqual(choose([...others, prepared(20)], other), 'prepared', 'a template of another shape');
  });

  it('of a volume needs room on its disk only', () => {
    const volume: PlacementRequest = { room: { ...NO_ROOM, diskGb: 50 }, stack: undefined };
    const noMemory = hostOf('no memory', { reserved_memory_mb: 2 * 65_536, images: [] });
    assert.equal(choose([noMemory], volume), 'no memory');
  });
});
