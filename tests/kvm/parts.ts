// Names the parts of the KVM test: two short walks, the benchmark with few repetitions, and each file of the end-to-end
// tests. A walk uses every kind of machine once, and checks that the machines are on KVM and which settings QEMU got.
// Each part starts a service of its own.
import { Problem } from '@sandbar/service/problem.ts';
import { selectTestFiles } from '@sandbar/test-runner/test-files.ts';

/** A walk with default settings, on Debian's `-microvm` build of QEMU. */
export const LIFE = 'life';
/** The same walk with the complete QEMU, io_uring and vhost-net. */
export const LIFE_WITH_MORE = 'life-io_uring-vhost';
/** Shows that the benchmark measures KVM. Its figures mean nothing in an emulated host. */
export const BENCH = 'bench';
/**
 * The test passes the names of the parts to the emulated host in this kernel parameter. It has a dot, because the kernel
 * ignores unknown parameters with a dot.
 */
const PARAMETER = 'kvmtest.parts=';

/** Returns the parts whose names contain one of `filters`, or all parts. Throws Problem when there is none. */
export function chooseParts(checkout: string, filters: readonly string[]): string[] {
  const files = selectTestFiles(checkout, []).filter((file) => file.startsWith('tests/e2e/'));
  const parts = [LIFE, LIFE_WITH_MORE, BENCH, ...files].filter(
    (part) => filters.length === 0 || filters.some((name) => part.includes(name)),
  );
  if (parts.length === 0) throw new Problem(`No part of the KVM test matches ${filters.join(' ')}`);
  return parts;
}

export function partsParameter(parts: readonly string[]): string {
  return PARAMETER + parts.join(',');
}

/** Reads the parts from the kernel's command line. */
export function readParts(commandLine: string): string[] {
  const parameter = commandLine.split(/\s+/).find((word) => word.startsWith(PARAMETER));
  return parameter?.slice(PARAMETER.length).split(',') ?? [];
}
