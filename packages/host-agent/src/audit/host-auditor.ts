// Compares what exists on the host with what the agent knows: processes, control groups, taps, rules and files.
// Everything that is named after a VM id or lies in the data directory belongs to this agent, so unknown objects can be
// removed.
import { existsSync, readdirSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import { basename, join } from 'node:path';
import type { homePaths } from '@sandbar/contract/home.ts';
import type { HostFinding } from '@sandbar/contract/host-api.ts';
import { killProcess, type ProcessInfo } from '../hypervisor/process.ts';
import type { MachineRegistry } from '../machines/registry.ts';
import type { DataVolumes } from '../storage/data-volumes.ts';
import type { VmHost } from '../vms/vm-host.ts';
import { type DiskStores, diskFindings } from './disk-findings.ts';
import { volumeFindings } from './volume-findings.ts';

type Paths = Pick<
  ReturnType<typeof homePaths>,
  'machines' | 'runMachines' | 'runPool' | 'runTemplates' | 'pool' | 'templates'
>;
type Found = HostFinding & { mend: () => Promise<void> };

export class HostAuditor {
  readonly #vms: VmHost;
  readonly #machines: MachineRegistry;
  readonly #paths: Paths;
  readonly #disks: DiskStores & { dataVolumes: DataVolumes };

  constructor(vms: VmHost, machines: MachineRegistry, paths: Paths, disks: DiskStores & { dataVolumes: DataVolumes }) {
    this.#disks = disks;
    this.#vms = vms;
    this.#machines = machines;
    this.#paths = paths;
  }

  /**
   * Returns all findings. Checks the host twice and reports only what both checks find, because an operation that
   * begins or ends during a check can look like a fault.
   */
  async look(): Promise<HostFinding[]> {
    return (await this.#lookTwice()).map(({ mend: _, ...finding }) => finding);
  }

  /**
   * Removes our objects that no VM or machine uses. `fixed`: findings that are gone now; `findings`: findings that are
   * left.
   */
  async fix(): Promise<{ findings: HostFinding[]; fixed: HostFinding[] }> {
    const before = await this.#lookTwice();
    // Errors are ignored, because the next check reports again every finding that could not be mended.
    for (const { mend } of before) await mend().catch(() => {});
    const findings = await this.look();
    const left = new Set(findings.map(({ subject }) => subject));
    const fixed = before.filter(({ subject }) => !left.has(subject)).map(({ mend: _, ...finding }) => finding);
    return { findings, fixed };
  }

  async #lookTwice(): Promise<Found[]> {
    const first = new Set((await this.#lookOnce()).map(({ subject }) => subject));
    if (first.size === 0) return [];
    return (await this.#lookOnce()).filter(({ subject }) => first.has(subject));
  }

  async #lookOnce(): Promise<Found[]> {
    // Lists the host's objects first, and asks which VMs are known afterwards. In the other order, a VM that starts in
    // between would be unknown and its objects would be reported as strays.
    const inventory = this.#vms.hypervisor.inventory();
    const attached = await this.#vms.network.listVmIds();
    const files = this.#files();
    const runDirs = this.#vms.running().map((vm) => vm.runDir);
    return [
      ...this.#strayProcesses(inventory.processes),
      ...this.#strays('cgroup', 'control group of VM', inventory.cgroups),
      ...this.#strays('tap', 'tap and rules of VM', attached),
      ...this.#strays('file', 'record of VM', inventory.records),
      ...this.#missing(attached),
      ...files,
      ...diskFindings(this.#disks),
      ...volumeFindings(this.#disks.dataVolumes, runDirs, Date.now()),
    ];
  }

  #strayProcesses(processes: readonly ProcessInfo[]): Found[] {
    const pids = new Set(this.#vms.running().map((vm) => vm.pid));
    const isStarting = this.#vms.knownIds().size > this.#vms.running().length;
    return processes
      .filter(({ pid }) => !pids.has(pid) && !isStarting)
      .map((info) => ({
        kind: 'process',
        subject: `QEMU process ${info.pid}`,
        detail: `It works in ${info.cwd}, and belongs to no machine, clone or template.`,
        fixable: true,
        mend: () => killProcess(info),
      }));
  }

  #strays(kind: HostFinding['kind'], what: string, vmIds: readonly string[]): Found[] {
    const known = this.#vms.knownIds();
    return vmIds
      .filter((vmId) => !known.has(vmId))
      .map((vmId) => ({
        kind,
        subject: `${what} ${vmId}`,
        detail: 'There is no such VM.',
        fixable: true,
        mend: () => this.#vms.removeStray(vmId),
      }));
  }

  /** Reports running VMs without a tap or rules. Such a machine has no network until it or the agent restarts. */
  #missing(attached: readonly string[]): Found[] {
    if (this.#vms.network.kind !== 'bridge') return [];
    return this.#vms
      .running()
      .filter(({ vmId }) => !attached.includes(vmId))
      .map(({ vmId, runDir }) => ({
        kind: 'rules',
        subject: `tap of VM ${vmId}`,
        detail: `The VM of ${basename(runDir)} has no tap and no rules: restart the host agent or the machine.`,
        fixable: false,
        mend: async () => {},
      }));
  }

  /** Reports files and folders of machines, clones and templates that no longer exist. */
  #files(): Found[] {
    const { machines, runMachines, runPool, runTemplates, pool, templates } = this.#paths;
    const runDirs = new Set(this.#vms.running().map((vm) => vm.runDir));
    const runs = [runMachines, runPool, runTemplates]
      .flatMap((dir) => entriesOf(dir))
      .filter((path) => !runDirs.has(path));
    const disks = entriesOf(pool).filter((path) => !runDirs.has(join(runPool, basename(path, '.qcow2'))));
    const isClaimed = (path: string) => this.#vms.isClaimed(path.replace(/\.partial$/, ''));
    const folders = entriesOf(machines).filter((path) => !this.#machines.has(basename(path)));
    const unfinished = entriesOf(templates).filter((path) => basename(path).startsWith('.'));
    return [
      ...[...runs, ...disks, ...unfinished]
        .filter((path) => !isClaimed(path))
        .map((path) => leftFile(path, 'No VM has it.', true)),
      // A machine's folder is not removed automatically, because its disk may be all that is left of somebody's work.
      // Only destroying the machine or an administrator removes the folder.
      ...folders.map((path) => leftFile(path, 'No machine that can be read has it.', false)),
    ];
  }
}

function leftFile(path: string, detail: string, fixable: boolean): Found {
  const mend = async () => {
    if (fixable) await rm(path, { recursive: true, force: true });
  };
  return { kind: 'file', subject: path, detail, fixable, mend };
}

function entriesOf(dir: string): string[] {
  return existsSync(dir) ? readdirSync(dir).map((name) => join(dir, name)) : [];
}
