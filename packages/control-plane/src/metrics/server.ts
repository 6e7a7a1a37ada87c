// Health and metrics. They need no credential, so they have an address of their own and are not public by accident.
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { sql } from 'kysely';
import type { App } from '../app.ts';
import { sleep } from '../concurrency.ts';
import { type RequestCounter, readCounterKey } from './requests.ts';

const CHECK_MS = 2_000;

/** `/healthz` (the process answers), `/readyz` (database and host answer), `/metrics` (Prometheus text). */
export function createMetricsServer(app: App, requests: RequestCounter): Server {
  return createServer((request, response) => {
    answer(app, requests, request, response).catch((error: unknown) => {
      app.log.warn({ err: error }, 'a health or metrics request failed');
      send(response, 503, 'text/plain', 'unavailable\n');
    });
  });
}

async function answer(app: App, requests: RequestCounter, request: IncomingMessage, response: ServerResponse) {
  const path = request.url?.split('?')[0];
  if (path === '/healthz') return send(response, 200, 'application/json', '{"status":"ok"}\n');
  if (path === '/readyz') return sendReadiness(app, response);
  if (path === '/metrics') return send(response, 200, 'text/plain; version=0.0.4', await writeMetrics(app, requests));
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

async function writeMetrics(app: App, requests: RequestCounter): Promise<string> {
  const lines = [
    '# HELP sandbar_process_resident_memory_bytes Memory of the control plane.',
    '# TYPE sandbar_process_resident_memory_bytes gauge',
    `sandbar_process_resident_memory_bytes ${process.memoryUsage.rss()}`,
    '# HELP sandbar_http_requests_total Requests answered.',
    '# TYPE sandbar_http_requests_total counter',
  ];
  for (const [key, count] of requests) {
    const [method, route, status] = readCounterKey(key);
    lines.push(`sandbar_http_requests_total{method="${method}",route="${route}",status="${status}"} ${count}`);
  }
  lines.push('# HELP sandbar_machines Machines by state.', '# TYPE sandbar_machines gauge');
  const states = await app.db
    .selectFrom('machines')
    .select((expression) => ['state', expression.fn.countAll<number>().as('count')])
    .groupBy('state')
    .execute();
  for (const { state, count } of states) lines.push(`sandbar_machines{state="${state}"} ${count}`);
  return `${lines.join('\n')}\n`;
}

function send(response: ServerResponse, status: number, type: string, body: string): void {
  response.writeHead(status, { 'content-type': type }).end(body);
}
