// Serves health and metrics on a separate address, without credentials. They are public only if that address is public.
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { sql } from 'kysely';
import type { Registry } from 'prom-client';
import type { App } from '../app.ts';
import { sleep } from '../concurrency.ts';
import type { HostClient } from '../hosts/client.ts';
import { addFleetGauges } from './fleet.ts';
import { addProcessMetrics } from './process.ts';

const CHECK_MS = 2_000;

/**
 * Serves `/healthz` (the process answers), `/readyz` (the database and the host of this computer answer) and `/metrics`
 * (the registry as Prometheus text). Adds to the registry the metrics that are read when they are scraped.
 */
export function createMetricsServer(app: App, registry: Registry): Server {
  addProcessMetrics(registry);
  addFleetGauges(app, registry);
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
  if (path === '/metrics') return send(response, 200, registry.contentType, await textOf(registry));
  return send(response, 404, 'application/json', '{"detail":"There is nothing at this path.","code":"not_found"}\n');
}

/**
 * Writes the metrics as text. With 1,000 hosts that is 15,000 lines and takes 40 ms, so requests get their turn after
 * each metric.
 */
async function textOf(registry: Registry): Promise<string> {
  const parts: string[] = [];
  for (const { name } of registry.getMetricsAsArray()) {
    parts.push(await registry.getSingleMetricAsString(name));
    await nextTurn();
  }
  return `${parts.join('\n\n')}\n`;
}

async function sendReadiness(app: App, response: ServerResponse): Promise<void> {
  if (app.draining.aborted) {
    return send(response, 503, 'application/json', '{"ready":false,"checks":{"shutdown":"has begun"}}\n');
  }
  const { local } = app.hosts;
  const checks = {
    database: passes(sql`select 1`.execute(app.db)),
    // A replica without a host on its own computer is ready without any host.
    ...(local ? { host: passes(answersKnown(app, local)) } : {}),
  };
  const results = await Promise.all(Object.entries(checks).map(async ([name, check]) => [name, await check] as const));
  const ready = results.every(([, hasPassed]) => hasPassed);
  const told = Object.fromEntries(results.map(([name, hasPassed]) => [name, hasPassed ? 'ok' : 'failed']));
  send(response, ready ? 200 : 503, 'application/json', `${JSON.stringify({ ready, checks: told })}\n`);
}

/** Throws until requests can be sent to the host of this computer: its agent answers, and its id is known. */
async function answersKnown(app: App, local: HostClient): Promise<void> {
  await local.info();
  if (app.hosts.localId() === undefined) throw new Error('The id of the host is not known yet.');
}

const passes = (check: Promise<unknown>): Promise<boolean> =>
  Promise.race([check.then(() => true), sleep(CHECK_MS).then(() => false)]).catch(() => false);

function send(response: ServerResponse, status: number, type: string, body: string): void {
  response.writeHead(status, { 'content-type': type }).end(body);
}
