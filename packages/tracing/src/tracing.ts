// The interface with which the service records traces. Without a collector its functions record nothing, and start.ts
// loads no code of OpenTelemetry.
import type { IncomingHttpHeaders } from 'node:http';

export type Attributes = Record<string, string | number | boolean | undefined>;
export type SpanKind = 'server' | 'client' | 'internal';

export type OpenSpan = {
  set(attributes: Attributes): void;
  /**
   * Marks the span as failed, with an error or an error code. Records only the code or name of an error, because its
   * message may contain data of a user.
   */
  fail(error: unknown): void;
  /** Runs `work`. Spans that begin in `work` get this span as their parent. */
  run<T>(work: () => T): T;
  end(): void;
};

export type SpanOptions = {
  kind?: SpanKind;
  attributes?: Attributes;
  /** The headers of a request. The span continues the trace that they name (W3C Trace Context). */
  from?: IncomingHttpHeaders;
};

export type Tracing = {
  readonly isOn: boolean;
  /**
   * Begins a span. Its parent is the span that the headers in `options.from` name, else the present span. Without
   * either, the span is the root of a new trace.
   */
  begin(name: string, options?: SpanOptions): OpenSpan;
  /**
   * Runs `work` in a span whose parent is the present span. The span ends with the promise, and a rejection marks it as
   * failed. Without a present span, runs `work` and records nothing, so that background work begins no traces.
   */
  span<T>(name: string, options: SpanOptions, work: (span: OpenSpan) => Promise<T>): Promise<T>;
  /** Like {@link span}, but begins a trace when there is no present span. */
  trace<T>(name: string, options: SpanOptions, work: (span: OpenSpan) => Promise<T>): Promise<T>;
  /** Runs `work` without a present span. Use it for work whose many calls should not get a span each. */
  detach<T>(work: () => T): T;
  /** Adds an event to the present span. */
  event(name: string, attributes?: Attributes): void;
  /** Returns the headers with which a request to another process continues the present trace. */
  headers(): Record<string, string>;
  /** Returns a function that runs `work` later with the span that is present now, for example from a queue. */
  bind<T>(work: () => T): () => T;
  /** Sends the spans that still wait, but gives up after a few seconds. Never throws. */
  close(): Promise<void>;
};

/** A span that records nothing. */
export const NO_SPAN: OpenSpan = { set: () => {}, fail: () => {}, run: (work) => work(), end: () => {} };

/** Traces nothing. */
export const NO_TRACING: Tracing = {
  isOn: false,
  begin: () => NO_SPAN,
  span: (_name, _options, work) => work(NO_SPAN),
  trace: (_name, _options, work) => work(NO_SPAN),
  detach: (work) => work(),
  event: () => {},
  headers: () => ({}),
  bind: (work) => work,
  close: async () => {},
};
