// Serves health and metrics on a separate address, without credentials. They are public only if that address is public.
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { sql } from 'kysely';
import { Gauge, type Registry } from 'prom-client';
import type { App } from '../app.ts';
import { sleep } from '../concurrency.ts';

const CHECK_MS = 2_000;

/**
 * Serves `/healthz` (the process answers), `/readyz` (database and host answer) and `/metrics` (the registry as
 * Prometheus text). Adds the gauges of the replica to its registry.
 */
export function createMetricsServer(app: App, registry: Registry): Server {
  addGauges(app, registry);
  return createServer((request, response) => {
    answer(app, registry, request, response).catch((error: unknown) => {
      app.log.warn({ err: error }, 'a health or metrics request failed');
      send(response, 503, 'text/plain', 'unavailable\n');
    });
  });
}

async function answer(app: App, registry: Registry, request: IncomingMessage, response: ServerResponse) {
  const path = request.url?.split('?')[0];
  if (path === '/healthz') return send(response, 200, 'application/json', '{"status":"ok"}\n');
  if (path === '/readyz') return sendReadiness(app, response);
  if (path === '/metrics') return send(response, 200, registry.contentType, await registry.metrics());
  return send(response, 404, 'application/json', '{"detail":"There is nothing at this path.","code":"not_found"}\n');
}

async function sendReadiness(app: App, response: ServerResponse): Promise<void> {
  const [database, host] = await Promise.all([passes(sql`select 1`.execute(app.db)), passes(app.hosts.local.info())]);
  const ready = database && host;
  const body = { ready, checks: { database: database ? 'ok' : 'failed', host: host ? 'ok' : 'failed' } };
  send(response, ready ? 200 : 503, 'application/json', `${JSON.stringify(body)}\n`);
}

const passes = (check: Promise<unknown>): Promise<boolean> =>
  Promise.race([check.then(() => true), sleep(CHECK_MS).then(() => false)]).catch(() => false);

/** Adds the gauges. Each gauge reads its value when the metrics are requested. */
function addGauges(app: App, registry: Registry): void {
  const registers = [registry];
  new Gauge({
    name: 'sandbar_process_resident_memory_bytes',
    help: 'Memory of the control plane.',
    registers,
    collect() {
      this.set(process.memoryUsage.rss());
    },
  });
  new Gauge({
    name: 'sandbar_machines',
    help: 'Machines by state.',
    labelNames: ['state'],
    registers,
    async collect() {
      const states = await app.db
        .selectFrom('machines')
        .select((expression) => ['state', expression.fn.countAll<number>().as('count')])
        .groupBy('state')
        .execute();
      // Remove old counts first: a state that no machine has any more would keep its last count.
      this.reset();
      for (const { state, count } of states) this.set({ state }, Number(count));
    },
  });
}

function send(response: ServerResponse, status: number, type: string, body: string): void {
  response.writeHead(status, { 'content-type': type }).end(body);
}
