// The metrics of the agent that say what it has at the time of a scrape: VMs, machines, pool, disk, memory.
import { HOST_MACHINE_STATUSES, type MachineReport } from '@sandbar/contract/host-api.ts';
import { Counter, Gauge, type Registry } from 'prom-client';
import type { DiskReserve } from '../storage/disk-reserve.ts';
import type { VmHost } from '../vms/vm-host.ts';

export type AgentState = {
  vms: Pick<VmHost, 'running'>;
  machines: { reports(): readonly MachineReport[] };
  pool: { status(): { ready: number; target: number } };
  reserve: Pick<DiskReserve, 'facts' | 'isShort'>;
};

export function addStateMetrics(registry: Registry, { vms, machines, pool, reserve }: AgentState): void {
  const gauge = (name: string, help: string, read: () => number) =>
    new Gauge({
      name,
      help,
      registers: [registry],
      collect() {
        this.set(read());
      },
    });
  new Gauge({
    name: 'sandbar_agent_machines',
    help: 'Machines of the host by status: starting, running, stopped or failed.',
    labelNames: ['status'],
    registers: [registry],
    collect() {
      const reports = machines.reports();
      for (const status of HOST_MACHINE_STATUSES)
        this.set({ status }, reports.filter((report) => report.status === status).length);
    },
  });
  gauge(
    'sandbar_agent_vms',
    'Processes of QEMU that run on the host: machines, clones that wait, and templates that are being made.',
    () => vms.running().length,
  );
  gauge('sandbar_agent_pool_ready_clones', 'Clones that wait in the pool.', () => pool.status().ready);
  gauge('sandbar_agent_pool_target_clones', 'Clones that should wait in the pool.', () => pool.status().target);
  gauge(
    'sandbar_agent_filesystem_size_bytes',
    'Size of the file system with the data directory.',
    () => reserve.facts().totalBytes,
  );
  gauge(
    'sandbar_agent_filesystem_free_bytes',
    'Bytes of that file system that nothing occupies.',
    () => reserve.facts().freeBytes,
  );
  gauge(
    'sandbar_agent_filesystem_reserve_bytes',
    'Bytes of that file system that only the service may use.',
    () => reserve.facts().reserveBytes,
  );
  gauge(
    'sandbar_agent_disk_short',
    'Whether the free space is down to the reserve, so that all guests are held: 1 or 0.',
    () => (reserve.isShort ? 1 : 0),
  );
  gauge('sandbar_agent_process_resident_memory_bytes', 'Memory of the host agent.', () => process.memoryUsage.rss());
  addCpuSeconds(registry);
}

function addCpuSeconds(registry: Registry): void {
  let last = 0;
  new Counter({
    name: 'sandbar_agent_process_cpu_seconds_total',
    help: 'Processor time of the host agent.',
    registers: [registry],
    collect() {
      const { user, system } = process.cpuUsage();
      const now = (user + system) / 1e6;
      this.inc(Math.max(0, now - last));
      last = now;
    },
  });
}
