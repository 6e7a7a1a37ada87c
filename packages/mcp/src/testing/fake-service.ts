// A fake of the service for tests of the tools. Each test sets the answers of the fake.
import { once } from 'node:events';
import { createServer } from 'node:http';

export type FakeRequest = { method: string; path: string; query: URLSearchParams; headers: Headers; body: string };
/** A `body` of text or bytes is sent unchanged, any other as JSON. `isBroken`: break the connection instead. */
export type FakeAnswer = { status?: number; headers?: Record<string, string>; body?: unknown; isBroken?: boolean };
export type FakeHandler = (request: FakeRequest) => FakeAnswer | Promise<FakeAnswer>;

export type FakeService = {
  baseUrl: string;
  requests: FakeRequest[];
  /** Sets the handler of a route such as `GET /path`. In the path, `*` stands for any one part. */
  on(route: string, handler: FakeHandler): void;
  /** Forgets all handlers and requests. */
  reset(): void;
  close(): void;
};

export async function startFakeService(): Promise<FakeService> {
  const handlers = new Map<string, FakeHandler>();
  const requests: FakeRequest[] = [];
  const server = createServer(async (incoming, response) => {
    const chunks: Buffer[] = [];
    for await (const chunk of incoming) chunks.push(chunk);
    const { pathname, searchParams } = new URL(incoming.url ?? '/', 'http://service');
    const request: FakeRequest = {
      method: incoming.method ?? '',
      path: pathname,
      query: searchParams,
      headers: new Headers(incoming.headers as Record<string, string>),
      body: Buffer.concat(chunks).toString(),
    };
    requests.push(request);
    const handler = [...handlers].findLast(([route]) => matches(route, request))?.[1];
    const {
      status = 200,
      headers = {},
      body,
      isBroken = false,
    } = handler ? await handler(request) : refused(404, 'not_found', 'Nothing here.');
    if (isBroken) {
      response.destroy();
      return;
    }
    const isRaw = typeof body === 'string' || body instanceof Uint8Array;
    response.writeHead(status, { 'content-type': isRaw ? 'application/octet-stream' : 'application/json', ...headers });
    response.end(isRaw ? body : JSON.stringify(body ?? {}));
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as { port: number };
  return {
    baseUrl: `http://127.0.0.1:${port}`,
    requests,
    on: (route, handler) => {
      handlers.delete(route);
      handlers.set(route, handler);
    },
    reset: () => {
      handlers.clear();
      requests.length = 0;
    },
    close: () => {
      server.close();
      server.closeAllConnections();
    },
  };
}

/** An error as the service sends it. */
export function refused(
  status: number,
  code: string,
  detail: string,
  headers: Record<string, string> = {},
): FakeAnswer {
  return { status, headers, body: { code, detail } };
}

function matches(route: string, { method, path }: FakeRequest): boolean {
  const [wantedMethod, wantedPath = ''] = route.split(' ');
  const parts = path.split('/');
  const wanted = wantedPath.split('/');
  return (
    method === wantedMethod &&
    parts.length === wanted.length &&
    wanted.every((part, at) => part === '*' || part === parts[at])
  );
}
