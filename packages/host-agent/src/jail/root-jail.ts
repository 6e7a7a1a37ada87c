// The jail of an agent with root. Every VM has its own uid, cgroup and root folder, no capabilities, and an empty
// environment (command-line.ts has the details). A compromised QEMU can access only the files of its own machine.
import { readdirSync, readFileSync, readlinkSync, realpathSync, rmSync } from 'node:fs';
import { basename } from 'node:path';
import { CommandError, runCommand } from '../run-command.ts';
import { type CgroupOptions, type Cgroups, openCgroups } from './cgroup.ts';
import { type JailPrograms, jailArgs } from './command-line.ts';
import { DeviceNodes, devicesFolder } from './device-nodes.ts';
import { ownersOfFiles } from './file-owners.ts';
import { checkVmId, type Jail, type JailCommand, type JailedProcess } from './jail.ts';
import { findProgramFiles, type ProgramFiles } from './program-files.ts';
import { giveFile, makeRunDirectory } from './run-directory.ts';
import { findTool } from './tools.ts';
import { reservedUids, UidPool } from './uid-pool.ts';

const ALWAYS_THERE = ['/dev/null', '/dev/urandom'];

export type RootJailOptions = {
  /** The data directory, which contains the run directories. */
  home: string;
  /** Absolute paths of the programs that will run in the jail, that is, QEMU. */
  programs: readonly string[];
  cgroups?: CgroupOptions | undefined;
};

export class RootJail implements Jail {
  readonly lacks: readonly string[];
  readonly #home: string;
  readonly #programs: JailPrograms;
  readonly #files: ProgramFiles;
  readonly #cgroups: Cgroups;
  readonly #devices: DeviceNodes;
  readonly #uids: UidPool;

  private constructor(home: string, programs: JailPrograms, files: ProgramFiles, cgroups: Cgroups) {
    this.#home = home;
    this.#programs = programs;
    this.#files = files;
    this.#cgroups = cgroups;
    this.#devices = new DeviceNodes(devicesFolder(home));
    const { vms } = reservedUids(home);
    this.#uids = new UidPool(vms, () => ownersOfFiles(home, vms));
    this.lacks = cgroups.lacks;
  }

  /**
   * Finds the needed tools and files, and tests the jail by running each program in it. Throws an error that says what
   * to install or mount.
   */
  static async open({ home, programs, cgroups }: RootJailOptions): Promise<RootJail> {
    const tools: JailPrograms = {
      bwrap: findTool('bwrap', 'bubblewrap'),
      setpriv: findTool('setpriv', 'util-linux'),
      env: findTool('env', 'coreutils'),
    };
    const files = await findProgramFiles([tools.setpriv, tools.env, ...programs.map((path) => realpathSync(path))]);
    const jail = new RootJail(home, tools, files, openCgroups(home, cgroups));
    for (const program of programs) await jail.#check(program);
    return jail;
  }

  reserveUid(vmId: string): number {
    checkVmId(vmId);
    return this.#uids.take(vmId);
  }

  async prepare(vm: JailedProcess): Promise<JailCommand> {
    const uid = this.reserveUid(vm.vmId);
    makeRunDirectory(this.#home, vm.runDir, { uid, gid: uid });
    for (const file of vm.writableFiles ?? []) giveFile(file, { uid, gid: uid });
    const procsFiles = this.#cgroups.create(vm.vmId, vm.limits);
    const args = await this.#args(vm, uid, procsFiles);
    return { command: '/bin/sh', args, uid };
  }

  adopt(vmId: string, uid: number | undefined): void {
    checkVmId(vmId);
    if (uid !== undefined) this.#uids.takeAgain(vmId, uid);
  }

  programPid(vmId: string, spawnedPid: number): number | undefined {
    const inGroup = this.processesOf(vmId);
    const candidates = inGroup.length > 0 ? inGroup : readdirSync('/proc').map(Number).filter(Number.isInteger);
    const chain = Object.values(this.#programs).map((path) => basename(path));
    return candidates.find((pid) => {
      const executable = executableOf(pid);
      return executable !== undefined && !chain.includes(executable) && parentOf(pid) === spawnedPid;
    });
  }

  processesOf(vmId: string): number[] {
    return this.#cgroups.processesOf(vmId);
  }

  setBackground(vmId: string, isBackground: boolean): void {
    this.#cgroups.setBackground(vmId, isBackground);
  }

  memoryKillsOf(vmId: string): number {
    return this.#cgroups.memoryKillsOf(vmId);
  }

  async release(vmId: string): Promise<void> {
    checkVmId(vmId);
    await this.#cgroups.remove(vmId);
    this.#uids.giveBack(vmId);
  }

  listVmIds(): string[] {
    return this.#cgroups.listVmIds();
  }

  async remove(): Promise<void> {
    this.#cgroups.removeAll();
    this.#devices.removeAll();
  }

  async #args(vm: JailedProcess, uid: number, procsFiles: readonly string[]): Promise<string[]> {
    const devices = await Promise.all(
      [...ALWAYS_THERE, ...vm.devices].map(async (device) => [await this.#devices.sourceOf(device), device] as const),
    );
    const jailed = { ...vm, program: realpathSync(vm.program) };
    return jailArgs(this.#programs, { process: jailed, uid, procsFiles, devices, files: this.#files });
  }

  /**
   * Runs the program once in a jail. A host can forbid namespaces or cgroups in many ways, and a trial at start shows
   * that before the first machine needs the jail.
   */
  async #check(program: string): Promise<void> {
    const vmId = '000000000000';
    const runDir = `${this.#home}/run/jail-check`;
    const limits = { vcpus: 1, memoryMb: 64, fileBytes: 1024 * 1024 };
    try {
      const vm = { vmId, runDir, program, args: ['--version'], readOnlyFiles: [], devices: [], limits };
      const { command, args } = await this.prepare(vm);
      await runCommand(command, args);
    } catch (error) {
      const why = error instanceof CommandError ? lastLine(error.message) : String(error);
      throw new Error(
        `this host does not let Sandbar jail its machines (bubblewrap in a control group): ${why}. A container needs CAP_SYS_ADMIN and cgroups of its own`,
      );
    } finally {
      await this.release(vmId);
      rmSync(runDir, { recursive: true, force: true });
    }
  }
}

function lastLine(text: string): string {
  return text.trim().split('\n').at(-1) ?? '';
}

function parentOf(pid: number): number | undefined {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
    return Number(stat.slice(stat.lastIndexOf(')') + 2).split(' ')[1]);
  } catch {
    return undefined;
  }
}

function executableOf(pid: number): string | undefined {
  try {
    return basename(readlinkSync(`/proc/${pid}/exe`));
  } catch {
    return undefined;
  }
}
