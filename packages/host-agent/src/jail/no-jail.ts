// What an account without root gets: the run directory, and nothing around the process.
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
    // The program's working directory is its run directory in every jail, wherever the caller spawns the command.
    const script = 'umask 0177; cd "$1" || exit 1; shift; unset PWD OLDPWD; exec "$@"';
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
