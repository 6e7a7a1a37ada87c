// The host agent's process: one a host. It owns the VMs, their network and their disks, and outlives none of them.
import { chmodSync, chownSync, mkdirSync, readFileSync, rmSync } from 'node:fs';
import { availableParallelism, totalmem } from 'node:os';
import { homePaths } from '@sandbar/contract/home.ts';
import type { HostInfo } from '@sandbar/contract/host-api.ts';
import type { Image } from '@sandbar/contract/image.ts';
import pLimit from 'p-limit';
import { type Logger, pino } from 'pino';
import { type HostAgentConfig, readConfig } from './config.ts';
import { loadHostState } from './host-state.ts';
import { buildServer } from './http/server.ts';
import { chooseAccelerator } from './hypervisor/accelerator.ts';
import { QemuHypervisor } from './hypervisor/qemu.ts';
import { checkQemu, findExecutable } from './hypervisor/qemu-version.ts';
import { describeImages, findMachineImage } from './images/machine-image.ts';
import { steadyStdout } from './log-destination.ts';
import { MachineRegistry } from './machines/registry.ts';
import { BridgeNetwork } from './network/bridge-network.ts';
import { hostNameServers } from './network/dns-relay.ts';
import type { HostNetwork } from './network/network.ts';
import { parseSubnet } from './network/subnet.ts';
import { UserNetwork } from './network/user-network.ts';
import { VolumeStore } from './storage/volume-store.ts';

const VERSION = '0.1.0';
/** Images are looked for again at this pace, so that a build shows without a restart. */
const IMAGES_REFRESH_MS = 30_000;

async function main(log: Logger): Promise<void> {
  const config = readConfig(process.env, process.getuid?.() ?? -1);
  const paths = homePaths(config.home);
  mkdirSync(paths.run, { recursive: true });
  const bootId = readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim();
  const state = loadHostState(config);

  const qemuPath = findExecutable(config.qemuPath);
  const [qemuVersion, images, base] = await Promise.all([
    checkQemu(qemuPath),
    describeImages(config.cacheDir),
    findMachineImage(config.cacheDir, 'base'),
  ]);
  const accelerator = await chooseAccelerator({
    choice: config.accelerator,
    stateDir: config.home,
    bootId,
    qemuVersion,
    probe: { qemuPath, ...base },
  });
  log.info({ qemu: qemuVersion, isolation: accelerator.isolation, because: accelerator.reason }, 'accelerator chosen');

  const network = await makeNetwork(config, state.subnet);
  const volumes = new VolumeStore(paths.volumes, log);
  const machines = new MachineRegistry(
    {
      hypervisor: new QemuHypervisor(qemuPath, accelerator.isolation, paths.runMachines),
      network,
      bootId,
      machinesDir: paths.machines,
      runMachinesDir: paths.runMachines,
      volumes,
      outputLimitBytes: config.outputLimitBytes,
      bootWindow: pLimit(config.concurrentBoots),
      log,
    },
    (stack) => findMachineImage(config.cacheDir, stack),
  );
  await machines.load();

  let currentImages: Image[] = images;
  const refresh = setInterval(() => {
    describeImages(config.cacheDir).then(
      (found) => {
        currentImages = found;
      },
      (err) => log.warn({ err }, 'images could not be read'),
    );
  }, IMAGES_REFRESH_MS);

  const info = (): HostInfo => ({
    host_id: state.hostId,
    version: VERSION,
    boot_id: bootId,
    isolation: accelerator.isolation,
    network: network.kind,
    subnet: network.subnet,
    cpus: availableParallelism(),
    memory_mb: Math.floor(totalmem() / 1024 / 1024),
    images: currentImages,
  });
  const server = buildServer({ info, bootId, machines, volumes }, log);
  rmSync(paths.hostAgentSocket, { force: true });
  await server.listen({ path: paths.hostAgentSocket });
  if (config.serviceGid !== undefined) chownSync(paths.hostAgentSocket, 0, config.serviceGid);
  chmodSync(paths.hostAgentSocket, 0o660);
  process.send?.({ type: 'ready' });
  log.info({ socket: paths.hostAgentSocket }, 'host agent ready');

  let ending = false;
  const end = async (why: string) => {
    if (ending) return;
    ending = true;
    log.info({ why }, 'host agent ends; its machines go on');
    clearInterval(refresh);
    await server.close();
    await machines.close();
    process.exit(0);
  };
  for (const signal of ['SIGTERM', 'SIGINT'] as const) process.on(signal, () => void end(signal));
  process.on('disconnect', () => void end('the supervisor is gone'));
}

async function makeNetwork(config: HostAgentConfig, cidr: string): Promise<HostNetwork> {
  const subnet = parseSubnet(cidr);
  if (!config.isRoot) return new UserNetwork(subnet);
  return BridgeNetwork.create(config.home, subnet, config.nameServers ?? hostNameServers());
}

const log = pino({ level: process.env.SANDBAR_LOG_LEVEL ?? 'info', base: { process: 'host-agent' } }, steadyStdout());
process.on('uncaughtException', (err) => {
  log.fatal({ err }, 'host agent failed');
  process.exit(1);
});
main(log).catch((error: unknown) => {
  const reason = error instanceof Error ? error.message : String(error);
  // The supervisor tells a person; without one the log has to.
  if (process.send) process.send({ type: 'failed', reason }, () => process.exit(1));
  log.fatal({ err: error }, reason);
  if (!process.send) process.exit(1);
});
