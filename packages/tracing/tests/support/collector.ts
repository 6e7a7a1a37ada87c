// A collector of traces for tests: takes OTLP over HTTP as JSON, and keeps the spans.
import {
  createServer,
  type IncomingHttpHeaders,
  type IncomingMessage,
  type Server,
  type ServerResponse,
} from 'node:http';
import type { AddressInfo } from 'node:net';

export type CollectedSpan = {
  /** The name of the process that made the span. */
  service: string;
  name: string;
  traceId: string;
  spanId: string;
  parentSpanId: string | undefined;
  /** 1: internal, 2: server, 3: client. */
  kind: number;
  attributes: Record<string, string | number | boolean>;
  events: string[];
  isFailed: boolean;
};

type Value = { stringValue?: string; intValue?: number | string; boolValue?: boolean };
type KeyValue = { key: string; value: Value };
type Exported = {
  resourceSpans: {
    resource: { attributes: KeyValue[] };
    scopeSpans: {
      spans: {
        name: string;
        traceId: string;
        spanId: string;
        parentSpanId?: string;
        kind: number;
        attributes: KeyValue[];
        events: { name: string }[];
        status: { code?: number };
      }[];
    }[];
  }[];
};

const FAILED = 2;

export class Collector {
  readonly spans: CollectedSpan[] = [];
  readonly contentTypes: string[] = [];
  /** The headers of the last request. */
  headers: IncomingHttpHeaders | undefined;
  /** `take`: keeps the spans. `refuse`: answers 400, which exporters do not retry. `hang`: does not answer. */
  mode: 'take' | 'refuse' | 'hang' = 'take';
  readonly #server: Server;

  private constructor() {
    this.#server = createServer((request, response) => void this.#receive(request, response));
  }

  static async start(): Promise<Collector> {
    const collector = new Collector();
    await new Promise<void>((resolve) => collector.#server.listen(0, '127.0.0.1', resolve));
    return collector;
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  /** The environment of a process that sends its traces here. */
  get env(): Record<string, string> {
    return { OTEL_EXPORTER_OTLP_ENDPOINT: this.url, OTEL_EXPORTER_OTLP_PROTOCOL: 'http/json' };
  }

  async close(): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise((resolve) => this.#server.close(resolve));
  }

  async #receive(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const body = Buffer.concat(await request.toArray());
    this.headers = request.headers;
    this.contentTypes.push(String(request.headers['content-type']));
    if (this.mode === 'hang') return;
    if (this.mode === 'take' && request.headers['content-type'] === 'application/json') this.#keep(body.toString());
    response.writeHead(this.mode === 'take' ? 200 : 400, { 'content-type': 'application/json' }).end('{}');
  }

  #keep(text: string): void {
    for (const { resource, scopeSpans } of (JSON.parse(text) as Exported).resourceSpans) {
      const service = String(readAttributes(resource.attributes)['service.name']);
      for (const span of scopeSpans.flatMap(({ spans }) => spans)) {
        const { name, traceId, spanId, kind, status } = span;
        this.spans.push({
          ...{ service, name, traceId, spanId, kind },
          parentSpanId: span.parentSpanId || undefined,
          attributes: readAttributes(span.attributes),
          events: span.events.map((event) => event.name),
          isFailed: status.code === FAILED,
        });
      }
    }
  }
}

function readAttributes(list: KeyValue[]): CollectedSpan['attributes'] {
  const read = ({ stringValue, intValue, boolValue }: Value) =>
    stringValue ?? boolValue ?? (intValue === undefined ? '' : Number(intValue));
  return Object.fromEntries(list.map(({ key, value }) => [key, read(value)]));
}
