// Starts tracing if the environment names a collector. OpenTelemetry takes 10 MB of memory and some start-up time, so it
// is loaded only then.
import type { Log } from '@sandbar/logging/log.ts';
import { NO_TRACING, type Tracing } from './tracing.ts';

type Env = Record<string, string | undefined>;

/** `service`: the name of the process in traces, unless OTEL_SERVICE_NAME is set. */
export type TracingOptions = { service: string; env: Env; log: Pick<Log, 'info' | 'warn'> };

/** Returns the object that records traces. Never throws, because the service must also start without traces. */
export async function startTracing({ service, env, log }: TracingOptions): Promise<Tracing> {
  const url = collectorUrl(env);
  if (url === undefined) return NO_TRACING;
  try {
    const { OtlpTracing } = await import('./otlp.ts');
    const isJson = protocolOf(env) === 'http/json';
    const tracing = await OtlpTracing.create({ service, url, headers: headersOf(env), isJson, log });
    log.info({ collector: new URL(url).origin }, 'traces are sent by OTLP');
    return tracing;
  } catch (err) {
    log.warn({ err }, 'tracing is off: its settings are wrong');
    return NO_TRACING;
  }
}

/** Returns the address to send spans to, or undefined when nothing should be traced. */
export function collectorUrl(env: Env): string | undefined {
  if (env.OTEL_SDK_DISABLED?.toLowerCase() === 'true' || env.OTEL_TRACES_EXPORTER === 'none') return undefined;
  if (env.OTEL_EXPORTER_OTLP_TRACES_ENDPOINT) return env.OTEL_EXPORTER_OTLP_TRACES_ENDPOINT;
  const base = env.OTEL_EXPORTER_OTLP_ENDPOINT;
  return base ? `${base.replace(/\/+$/, '')}/v1/traces` : undefined;
}

/** The headers for every request to the collector, in OpenTelemetry's format `name=value,name=value`. */
const headersOf = (env: Env): string => env.OTEL_EXPORTER_OTLP_TRACES_HEADERS || env.OTEL_EXPORTER_OTLP_HEADERS || '';

const protocolOf = (env: Env): string | undefined =>
  env.OTEL_EXPORTER_OTLP_TRACES_PROTOCOL || env.OTEL_EXPORTER_OTLP_PROTOCOL;
