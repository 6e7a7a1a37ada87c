// Runs Perl scripts in the jail. Every Debian has Perl, and Perl can make any system call that a test expects to be
// refused.
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { CgroupOptions } from '../../src/jail/cgroup.ts';
import { closeInheritedDescriptors } from '../../src/jail/inherited-descriptors.ts';
import type { JailedProcess } from '../../src/jail/jail.ts';
import { RootJail } from '../../src/jail/root-jail.ts';

export const PERL = '/usr/bin/perl';
export const QEMU = '/usr/bin/qemu-system-x86_64';

export type Jailed = {
  vmId: string;
  uid: number;
  runDir: string;
  child: ChildProcess;
  /** Returns everything printed so far. */
  output(): string;
  /** Resolves when the output matches `pattern`. Rejects when the process ends first. */
  printed(pattern: RegExp): Promise<void>;
  /** Resolves with the whole output when the process has ended. */
  ended: Promise<string>;
};

/** A data directory with a jail. `close` ends all processes in the jail. */
export class JailFixture {
  readonly home: string;
  readonly jail: RootJail;
  #next = 1;

  private constructor(home: string, jail: RootJail) {
    this.home = home;
    this.jail = jail;
  }

  /** `home`: a new folder by default. */
  static async open(
    home = mkdtempSync(join(tmpdir(), 'sandbar-jail-')),
    cgroups?: CgroupOptions,
  ): Promise<JailFixture> {
    closeInheritedDescriptors();
    return new JailFixture(home, await RootJail.open({ home, programs: [QEMU, PERL], cgroups }));
  }

  newVm(spec: Partial<JailedProcess> = {}): JailedProcess {
    const vmId = (0xabc_0000_0000 + this.#next++).toString(16).padStart(12, '0');
    return {
      vmId,
      runDir: join(this.home, 'run/machines', vmId),
      program: PERL,
      args: [],
      readOnlyFiles: [],
      devices: [],
      limits: { vcpus: 1, memoryMb: 64, fileBytes: 64 * 1024 * 1024 },
      ...spec,
    };
  }

  /** Runs a Perl script in the jail. The script gets `descriptors` as its file descriptors 3, 4, and so on. */
  perl(script: string, spec: Partial<JailedProcess> = {}, descriptors: readonly number[] = []): Promise<Jailed> {
    return this.start(this.newVm({ args: ['-e', `$| = 1; ${script}`], ...spec }), descriptors);
  }

  async start(vm: JailedProcess, descriptors: readonly number[] = []): Promise<Jailed> {
    const { command, args, uid } = await this.jail.prepare(vm);
    const child = spawn(command, args, {
      cwd: '/',
      detached: true,
      env: {},
      stdio: ['ignore', 'pipe', 'pipe', ...descriptors],
    });
    let output = '';
    const collect = (chunk: Buffer) => {
      output += chunk;
      child.emit('printed');
    };
    child.stdout?.on('data', collect);
    child.stderr?.on('data', collect);
    const ended = once(child, 'close').then(() => output);
    const printed = async (pattern: RegExp) => {
      while (!pattern.test(output)) {
        const isOver = await Promise.race([once(child, 'printed').then(() => false), ended.then(() => true)]);
        if (isOver && !pattern.test(output)) throw new Error(`ended without ${pattern}: ${output}`);
      }
    };
    return { vmId: vm.vmId, uid: uid ?? -1, runDir: vm.runDir, child, output: () => output, printed, ended };
  }

  async close(): Promise<void> {
    for (const vmId of this.jail.listVmIds()) await this.jail.release(vmId);
    await this.jail.remove();
    rmSync(this.home, { recursive: true });
  }
}
