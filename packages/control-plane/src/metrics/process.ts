// The metrics of this process: memory, processor time, and its connections to the database.
import { performance } from 'node:perf_hooks';
import { Counter, Gauge, type Registry } from 'prom-client';
import type { DatabaseWatch } from '../db/watch.ts';

/** Adds the metrics of the process to the registry of a replica. Each reads its value when it is scraped. */
export function addProcessMetrics(registry: Registry): void {
  const registers = [registry];
  new Gauge({
    name: 'sandbar_process_resident_memory_bytes',
    help: 'Memory of the control plane.',
    registers,
    collect() {
      this.set(process.memoryUsage.rss());
    },
  });
  addSeconds(registry, 'sandbar_process_cpu_seconds_total', 'Processor time of the control plane.', () => {
    const { user, system } = process.cpuUsage();
    return (user + system) / 1e6;
  });
  addSeconds(
    registry,
    'sandbar_process_event_loop_busy_seconds_total',
    'Time in which the event loop of the control plane was busy. Near 1 s a second, requests wait for each other.',
    () => performance.eventLoopUtilization().active / 1000,
  );
}

/** Adds a counter of something that only grows and that `read` returns in seconds. */
function addSeconds(registry: Registry, name: string, help: string, read: () => number): void {
  let last = 0;
  new Counter({
    name,
    help,
    registers: [registry],
    collect() {
      const now = read();
      this.inc(Math.max(0, now - last));
      last = now;
    },
  });
}

/** Adds the metrics of the pool of database connections to the registry, and returns what counts for them. */
export function addDatabaseMetrics(registry: Registry): DatabaseWatch {
  const registers = [registry];
  let size = () => ({ total: 0, idle: 0, waiting: 0, most: 0 });
  new Gauge({
    name: 'sandbar_database_pool_connections',
    help: 'Open connections of this replica to the database, by state: idle or in_use.',
    labelNames: ['state'],
    registers,
    collect() {
      const { total, idle } = size();
      this.set({ state: 'idle' }, idle);
      this.set({ state: 'in_use' }, total - idle);
    },
  });
  new Gauge({
    name: 'sandbar_database_pool_max_connections',
    help: 'The most connections to the database that this replica opens.',
    registers,
    collect() {
      this.set(size().most);
    },
  });
  new Gauge({
    name: 'sandbar_database_pool_waiting',
    help: 'Statements and transactions of this replica that wait for a connection.',
    registers,
    collect() {
      this.set(size().waiting);
    },
  });
  const errors = new Counter({
    name: 'sandbar_database_query_errors_total',
    help:
      'Statements that failed, by reason: unavailable (the database did not answer, or refused connections), full (its ' +
      'disk), constraint (often two requests at the same moment; harmless) or other.',
    labelNames: ['reason'],
    registers,
  });
  return {
    opened: (read) => {
      size = read;
    },
    failed: (reason) => errors.inc({ reason }),
  };
}
