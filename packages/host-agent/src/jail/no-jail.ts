// The jail of an agent without root: it only makes the run directory. The process gets no isolation.
import { VM_OOM_SCORE_ADJ } from './command-line.ts';
import type { Jail, JailCommand, JailedProcess } from './jail.ts';
import { makeRunDirectory } from './run-directory.ts';

export class NoJail implements Jail {
  readonly lacks = [
    'VMs run as the account of the agent and see all of its files: for a uid and a file system of their own, run as root.',
    'CPU, memory and processes of a VM are not limited on the host: run as root.',
  ];
  readonly #home: string;

  constructor(home: string) {
    this.#home = home;
  }

  reserveUid(): undefined {
    return undefined;
  }

  async prepare(vm: JailedProcess): Promise<JailCommand> {
    makeRunDirectory(this.#home, vm.runDir, undefined);
    // The caller spawns the command in `/`, but every jail runs its program in the run directory. So the script enters
    // the run directory first.
    const prefer = `echo ${VM_OOM_SCORE_ADJ} > /proc/self/oom_score_adj`;
    const script = `umask 0177; ${prefer}; cd "$1" || exit 1; shift; unset PWD OLDPWD; exec "$@"`;
    return { command: '/bin/sh', args: ['-c', script, 'sandbar', vm.runDir, vm.program, ...vm.args], uid: undefined };
  }

  adopt(): void {}

  programPid(_vmId: string, spawnedPid: number): number | undefined {
    return spawnedPid;
  }

  processesOf(): number[] {
    return [];
  }

  setBackground(): void {}

  memoryKillsOf(): number {
    return 0;
  }

  async release(): Promise<void> {}

  listVmIds(): string[] {
    return [];
  }

  async remove(): Promise<void> {}
}
