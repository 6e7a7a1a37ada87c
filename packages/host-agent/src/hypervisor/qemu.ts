// Starts QEMU processes and finds again the ones that outlived an earlier agent.
import { spawn } from 'node:child_process';
import { closeSync, openSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { Isolation } from '@sandbar/contract/machine.ts';
import { newChannelToken } from '../guest/channel.ts';
import { diskFull, isDiskFull } from '../storage/overlay.ts';
import type { Hypervisor, Vm, VmSpec } from './driver.ts';
import { findQemuBelow, killProcess, type ProcessInfo, processInfo } from './process.ts';
import { qemuArgs, RUN_FILES } from './qemu-args.ts';
import { lastLogLine } from './qemu-log.ts';
import { QemuVm } from './qemu-vm.ts';
import { QmpClient } from './qmp.ts';
import { readTscKhz } from './tsc.ts';
import { connectUnix, connectUnixWhenReady } from './unix-socket.ts';

/** Spawning QEMU and reaching its monitor takes 30 ms on an idle machine. */
const MONITOR_TIMEOUT_MS = 15_000;
const TOKEN_FILE = 'channel-token';

export class QemuHypervisor implements Hypervisor {
  readonly isolation: Isolation;
  readonly #qemuPath: string;
  readonly #runMachines: string;
  readonly #tscKhz = readTscKhz();

  /** `runMachines`: the folder that holds one run directory a machine. */
  constructor(qemuPath: string, isolation: Isolation, runMachines: string) {
    this.#qemuPath = qemuPath;
    this.isolation = isolation;
    this.#runMachines = runMachines;
  }

  /** Starts a VM whose disk, network and (empty) run directory exist. Throws `host_unavailable` when QEMU will not run. */
  async launch(spec: VmSpec): Promise<Vm> {
    const token = newChannelToken();
    writeFileSync(join(spec.runDir, TOKEN_FILE), token, { mode: 0o600 });
    const qemu = this.#spawn(spec.runDir, qemuArgs(spec, token, { isolation: this.isolation, tscKhz: this.#tscKhz }));
    try {
      const timeout = AbortSignal.timeout(MONITOR_TIMEOUT_MS);
      const monitor = await connectUnixWhenReady(
        spec.runDir,
        RUN_FILES.qmp,
        timeout,
        () => qemu.failure() !== undefined,
      );
      const qmp = await QmpClient.open(monitor);
      return new QemuVm(qemu.info(), qmp, spec.runDir, token);
    } catch (error) {
      qemu.kill();
      if (isDiskFull(error) || /No space left/.test(qemu.failure() ?? '')) throw diskFull(error);
      throw new ServiceError(
        'host_unavailable',
        `the host cannot start machines: ${qemu.failure() ?? 'QEMU does not answer'}`,
        {
          retryAfterSec: 30,
          cause: error,
        },
      );
    }
  }

  async adopt(): Promise<Map<string, Vm>> {
    const adopted = new Map<string, Vm>();
    for (const [machineId, info] of findQemuBelow(this.#runMachines)) {
      const vm = await this.#adoptOne(machineId, info);
      if (vm) adopted.set(machineId, vm);
      else await killProcess(info);
    }
    return adopted;
  }

  async #adoptOne(machineId: string, info: ProcessInfo): Promise<Vm | undefined> {
    const runDir = join(this.#runMachines, machineId);
    try {
      const token = readFileSync(join(runDir, TOKEN_FILE), 'utf8');
      return new QemuVm(info, await QmpClient.open(await connectUnix(runDir, RUN_FILES.qmp)), runDir, token);
    } catch {
      return undefined;
    }
  }

  /** Detached, in a session of its own and with an empty environment: it outlives the agent and knows nothing of it. */
  #spawn(runDir: string, args: string[]) {
    const log = openSync(join(runDir, RUN_FILES.log), 'a', 0o600);
    const child = spawn(this.#qemuPath, args, { cwd: runDir, detached: true, stdio: ['ignore', log, log], env: {} });
    closeSync(log);
    child.unref();
    let failure: string | undefined;
    child.on('error', (error) => {
      failure = `${this.#qemuPath} cannot be run (${error.message}); install qemu-system-x86 or set SANDBAR_QEMU`;
    });
    child.on('exit', (code, signal) => {
      failure ??= `${this.#qemuPath} ended with ${signal ?? `code ${code}`}: ${lastLogLine(runDir) || 'no message'}`;
    });
    return {
      failure: () => failure,
      kill: () => child.kill('SIGKILL'),
      info: (): ProcessInfo => {
        const info = child.pid === undefined ? undefined : processInfo(child.pid);
        if (!info) throw new Error('QEMU ended at once');
        return info;
      },
    };
  }
}
