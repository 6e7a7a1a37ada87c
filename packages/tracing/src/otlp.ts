// Records traces with the SDK of OpenTelemetry and sends them by OTLP over HTTP. Spans wait in a bounded queue and are
// sent in batches in the background, so a slow or missing collector delays no request. When the queue is full, new
// spans are dropped.
//
// Nothing is registered globally, so tests can run several services in one process. The SDK itself reads OTEL_BSP_*,
// OTEL_TRACES_SAMPLER, OTEL_RESOURCE_ATTRIBUTES and the settings of the exporter from the environment.
import { AsyncLocalStorage } from 'node:async_hooks';
import { randomUUID } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import {
  type Context,
  defaultTextMapGetter,
  defaultTextMapSetter,
  ROOT_CONTEXT,
  type Span,
  SpanKind,
  SpanStatusCode,
  type Tracer,
  trace,
} from '@opentelemetry/api';
import { parseKeyPairsIntoRecord, setGlobalErrorHandler, W3CTraceContextPropagator } from '@opentelemetry/core';
import { detectResources, envDetector, resourceFromAttributes } from '@opentelemetry/resources';
import { BasicTracerProvider, BatchSpanProcessor, type SpanExporter } from '@opentelemetry/sdk-trace-base';
import { ATTR_ERROR_TYPE, ATTR_SERVICE_NAME } from '@opentelemetry/semantic-conventions';
import type { Log } from '@sandbar/logging/log.ts';
import { ReportingExporter } from './reporting-exporter.ts';
import { type Attributes, NO_SPAN, type OpenSpan, type SpanOptions, type Tracing } from './tracing.ts';

/** How long a shutdown waits for the collector, in milliseconds. */
const FLUSH_MS = 3_000;
const KINDS = { server: SpanKind.SERVER, client: SpanKind.CLIENT, internal: SpanKind.INTERNAL };

export type OtlpOptions = {
  service: string;
  url: string;
  /** Headers of all requests, as `name=value,name=value`. */
  headers: string;
  /** Whether spans are sent as JSON. The default of OTLP is protobuf. */
  isJson: boolean;
  log: Pick<Log, 'info' | 'warn'>;
};

export class OtlpTracing implements Tracing {
  readonly isOn = true;
  readonly #provider: BasicTracerProvider;
  readonly #tracer: Tracer;
  readonly #contexts = new AsyncLocalStorage<Context>();
  readonly #propagator = new W3CTraceContextPropagator();

  private constructor(provider: BasicTracerProvider) {
    this.#provider = provider;
    this.#tracer = provider.getTracer('sandbar');
  }

  static async create({ service, url, headers, isJson, log }: OtlpOptions): Promise<OtlpTracing> {
    // The exporter reports its errors to ReportingExporter. The global handler would log them a second time.
    setGlobalErrorHandler(() => {});
    const own = resourceFromAttributes({
      [ATTR_SERVICE_NAME]: service,
      'service.instance.id': randomUUID(),
    });
    const exporter = new ReportingExporter(await createExporter(url, parseKeyPairsIntoRecord(headers), isJson), log);
    return new OtlpTracing(
      new BasicTracerProvider({
        resource: own.merge(detectResources({ detectors: [envDetector] })),
        spanProcessors: [new BatchSpanProcessor(exporter)],
      }),
    );
  }

  begin(name: string, { kind = 'internal', attributes = {}, from }: SpanOptions = {}): OpenSpan {
    const parent = from
      ? this.#propagator.extract(ROOT_CONTEXT, from, defaultTextMapGetter)
      : (this.#contexts.getStore() ?? ROOT_CONTEXT);
    const span = this.#tracer.startSpan(name, { kind: KINDS[kind], attributes }, parent);
    const context = trace.setSpan(parent, span);
    return {
      set: (more) => void span.setAttributes(more),
      fail: (error) => markFailed(span, error),
      run: (work) => this.#contexts.run(context, work),
      end: () => span.end(),
    };
  }

  async span<T>(name: string, options: SpanOptions, work: (span: OpenSpan) => Promise<T>): Promise<T> {
    return this.#contexts.getStore() ? this.trace(name, options, work) : work(NO_SPAN);
  }

  async trace<T>(name: string, options: SpanOptions, work: (span: OpenSpan) => Promise<T>): Promise<T> {
    const span = this.begin(name, options);
    try {
      return await span.run(() => work(span));
    } catch (error) {
      span.fail(error);
      throw error;
    } finally {
      span.end();
    }
  }

  detach<T>(work: () => T): T {
    return this.#contexts.exit(work);
  }

  event(name: string, attributes: Attributes = {}): void {
    this.#present()?.addEvent(name, attributes);
  }

  headers(): Record<string, string> {
    const headers: Record<string, string> = {};
    const context = this.#contexts.getStore();
    if (context) this.#propagator.inject(context, headers, defaultTextMapSetter);
    return headers;
  }

  bind<T>(work: () => T): () => T {
    const context = this.#contexts.getStore();
    return context ? () => this.#contexts.run(context, work) : work;
  }

  async close(): Promise<void> {
    const late = new AbortController();
    const timeout = delay(FLUSH_MS, undefined, { signal: late.signal });
    await Promise.race([this.#provider.shutdown(), timeout]).catch(() => {});
    late.abort();
    timeout.catch(() => {});
  }

  #present(): Span | undefined {
    const context = this.#contexts.getStore();
    return context && trace.getSpan(context);
  }
}

/** Makes the exporter. Loads only the code for its protocol. */
async function createExporter(url: string, headers: Record<string, string>, isJson: boolean): Promise<SpanExporter> {
  const { OTLPTraceExporter } = isJson
    ? await import('@opentelemetry/exporter-trace-otlp-http')
    : await import('@opentelemetry/exporter-trace-otlp-proto');
  return new OTLPTraceExporter({ url, headers });
}

function typeOf(error: unknown): string {
  if (!(error instanceof Error)) return 'unknown';
  return 'code' in error && typeof error.code === 'string' ? error.code : error.name;
}

function markFailed(span: Span, error: unknown): void {
  const type = typeof error === 'string' ? error : typeOf(error);
  span.setAttribute(ATTR_ERROR_TYPE, type);
  span.setStatus({ code: SpanStatusCode.ERROR, message: type });
}
