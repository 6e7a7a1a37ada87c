// Finds the guest agent. The Debian package contains the finished program. A checkout has the sources only, which need a
// Go toolchain.
import { existsSync } from 'node:fs';
import path from 'node:path';
import type { AgentSource } from '@sandbar/host-agent/images/agent.ts';
import type { ServiceConfig } from '../config.ts';
import type { Progress, Say } from '../progress.ts';
import { ensureGo } from './go-toolchain.ts';

/** The finished guest agent in an installed package, relative to its folder. A checkout has no such file. */
export const BUILT_GUEST_AGENT = path.join('guest-agent', 'init');

/**
 * Resolves with the built guest agent of an installed package. In a checkout, resolves with the agent's sources and the
 * path of Go, and installs or downloads Go if needed. Throws Problem.
 */
export async function findGuestAgent(
  { checkout, cacheDir, isRoot }: Pick<ServiceConfig, 'checkout' | 'cacheDir' | 'isRoot'>,
  progress: Progress,
  say: Say,
): Promise<AgentSource> {
  const binaryPath = path.join(checkout, BUILT_GUEST_AGENT);
  if (existsSync(binaryPath)) return { binaryPath };
  const sourceDir = path.join(checkout, 'guest-agent');
  return { sourceDir, goPath: await ensureGo({ cacheDir, moduleDir: sourceDir, isRoot, progress, say }) };
}
