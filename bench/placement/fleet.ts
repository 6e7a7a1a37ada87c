// A made-up fleet and its load: hosts of four sizes, and machines whose sizes and lifetimes are drawn at random.
import type { Candidate } from '@sandbar/control-plane/hosts/placement.ts';
import type { HostRoom, Room } from '@sandbar/control-plane/hosts/room.ts';

export type SimulatedHost = Candidate;
/** A new machine, and how long it lives, in seconds. */
export type Arrival = { room: Room; lifetimeSec: number };

const GIB = 1024;
const image = {
  ...{ stack: 'base', description: '', digest: '', architecture: 'x86_64' as const, min_rootfs_gb: 2, default: true },
  created_at: '2026-01-01T00:00:00.000Z',
};

/** Sizes of hosts, and how many of ten have each: cores, memory in GiB, disk in GiB. */
const HOST_SIZES = [
  { of10: 4, cpus: 32, memoryGb: 128, diskGb: 2_000 },
  { of10: 3, cpus: 64, memoryGb: 256, diskGb: 4_000 },
  { of10: 2, cpus: 96, memoryGb: 192, diskGb: 4_000 },
  { of10: 1, cpus: 64, memoryGb: 512, diskGb: 8_000 },
] as const;

export function makeHosts(count: number): SimulatedHost[] {
  const sizes = HOST_SIZES.flatMap(({ of10, ...size }) => Array.from({ length: of10 }, () => size));
  return Array.from({ length: count }, (_, index) => {
    const { cpus, memoryGb, diskGb } = sizes[index % sizes.length] as (typeof sizes)[number];
    const room: HostRoom = {
      ...{ cpus, memory_mb: memoryGb * GIB, disk_mb: diskGb * GIB, disk_free_mb: diskGb * GIB, disk_reserve_mb: 0 },
      ...{ reserved_memory_mb: 0, reserved_vcpus: 0, reserved_disk_gb: 0 },
    };
    return { ...room, id: `host-${index}`, images: [image], templates: [], draining: false, isRefusing: false };
  });
}

/** Shapes of machines, and how many of a thousand have each. Few are large, and some need much of one resource. */
const SHAPES = [
  { of1000: 500, memoryGb: 1, vcpus: 1, diskGb: 10 },
  { of1000: 220, memoryGb: 2, vcpus: 2, diskGb: 10 },
  { of1000: 130, memoryGb: 4, vcpus: 2, diskGb: 20 },
  { of1000: 80, memoryGb: 8, vcpus: 4, diskGb: 40 },
  { of1000: 30, memoryGb: 2, vcpus: 8, diskGb: 20 },
  { of1000: 20, memoryGb: 16, vcpus: 2, diskGb: 40 },
  { of1000: 15, memoryGb: 32, vcpus: 16, diskGb: 100 },
  { of1000: 5, memoryGb: 64, vcpus: 32, diskGb: 200 },
] as const;
const LOTS = SHAPES.flatMap(({ of1000, ...shape }) => Array.from({ length: of1000 }, () => shape));

/** The median lifetime in seconds, and the spread of its logarithm: one in 40 lives more than 20 times the median. */
const LIFETIME = { medianSec: 120, sigma: 1.5 } as const;
export const MEAN_LIFETIME_SEC = LIFETIME.medianSec * Math.exp(LIFETIME.sigma ** 2 / 2);

export function drawArrival(random: () => number): Arrival {
  const { memoryGb, vcpus, diskGb } = LOTS[Math.floor(random() * LOTS.length)] as (typeof LOTS)[number];
  const lifetimeSec = LIFETIME.medianSec * Math.exp(LIFETIME.sigma * drawNormal(random));
  return { room: { memoryMb: memoryGb * GIB, vcpus, diskGb }, lifetimeSec };
}

/** Box-Muller: a number of the standard normal distribution. */
const drawNormal = (random: () => number): number =>
  Math.sqrt(-2 * Math.log(1 - random())) * Math.cos(2 * Math.PI * random());

/** Mulberry32: random numbers that a seed repeats. */
export function seeded(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296;
  };
}
