// The settings for all parts of the test in the emulated host, which is about ten times slower than usual.
import { mkdirSync } from 'node:fs';
import path from 'node:path';

export const CHECKOUT = path.join(import.meta.dirname, '..', '..', '..');
/** A cold boot on KVM on an emulated processor takes 10 times as long as under plain emulation, or longer. */
const BOOT_PATIENCE_MS = 180_000;
const START_PATIENCE_MS = 300_000;
/** Factor on the time limits of the end-to-end tests. */
const TEST_PATIENCE = 10;

export function makeTemporaryFolder({ TMPDIR = '/tmp' }: NodeJS.ProcessEnv): void {
  mkdirSync(TMPDIR, { recursive: true });
}

export function environment(): NodeJS.ProcessEnv {
  return {
    ...process.env,
    SANDBAR_CACHE: '/data/cache',
    SANDBAR_START_PATIENCE_MS: String(START_PATIENCE_MS),
    SANDBAR_BOOT_PATIENCE_MS: String(BOOT_PATIENCE_MS),
    SANDBAR_TEST_PATIENCE: String(TEST_PATIENCE),
    // Not /tmp, which is in the memory of the host.
    TMPDIR: '/data/tmp',
  };
}
