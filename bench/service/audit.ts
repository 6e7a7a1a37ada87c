// Checks that a service without machines has nothing left of machines. Uses `sandbar doctor`; a revision without that
// command is checked by a simple search for processes, taps and folders.
import { spawnSync } from 'node:child_process';
import { readdirSync } from 'node:fs';
import path from 'node:path';
import { networkNames } from '@sandbar/host-agent/network/names.ts';
import type { ModeService } from './bench-service.ts';
import { qemuPids } from './processes.ts';

export type Audit = {
  by: 'sandbar doctor' | 'a look at processes, taps and folders';
  /** One line for each process, tap or folder that should not be there. */
  findings: readonly string[];
};

export function audit(checkout: string, service: ModeService): Audit {
  if (hasDoctor(checkout, service)) return { by: 'sandbar doctor', findings: runDoctor(checkout, service) };
  return { by: 'a look at processes, taps and folders', findings: look(service) };
}

function hasDoctor(checkout: string, service: ModeService): boolean {
  return /^\s+doctor\b/m.test(sandbarCli(checkout, service, ['--help']).stdout);
}

function runDoctor(checkout: string, service: ModeService): string[] {
  const { status, stdout, stderr } = sandbarCli(checkout, service, ['doctor', '--json']);
  if (status === 0) return [];
  return [`sandbar doctor ended with ${status}: ${(stdout.trim() || stderr.trim()).slice(0, 1000)}`];
}

function sandbarCli(checkout: string, { paths }: ModeService, args: readonly string[]) {
  const env = { ...process.env, SANDBAR_HOME: paths.home };
  return spawnSync(path.join(checkout, 'node_modules/.bin/sandbar'), args, { encoding: 'utf8', env });
}

function look({ paths }: ModeService): string[] {
  const pooled = qemuPids(`${paths.run}/pool`).size;
  const taps = listFolder(`/sys/class/net/${networkNames(paths.home).bridge}/brif`);
  return [
    ...[...qemuPids(paths.runMachines)].map(([id, pid]) => `QEMU ${pid} of machine ${id}`),
    ...listFolder(paths.machines).map((name) => `folder machines/${name}`),
    ...listFolder(paths.runMachines).map((name) => `folder run/machines/${name}`),
    ...(taps.length > pooled ? [`${taps.length} taps for ${pooled} pooled clones`] : []),
  ];
}

function listFolder(folder: string): string[] {
  try {
    return readdirSync(folder);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return [];
    throw error;
  }
}
