// A TCP proxy in front of PostgreSQL that understands where each statement of a client begins and where its answer
// ends. It cuts the connection at a chosen statement: before PostgreSQL gets it, or after PostgreSQL has done it and
// before the client gets the answer.
import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';

export type Cut = 'before' | 'after';

export type CuttingProxy = {
  url: string;
  /** Cuts the connection at the `at`-th statement from now on, counted from 1 over all connections. */
  arm(at: number, cut: Cut): void;
  /** The statement at which the connection was cut; undefined: it was not. Disarms. */
  disarm(): string | undefined;
  close(): void;
};

/** `socketPath`: the Unix socket of PostgreSQL. */
export async function startCuttingProxy(socketPath: string, database: string): Promise<CuttingProxy> {
  let armed: { at: number; cut: Cut; seen: number; text: string | undefined } | undefined;
  const sockets = new Set<Socket>();
  const server = createServer((client) => {
    const upstream = connect(socketPath);
    const cutBoth = () => {
      client.destroy();
      upstream.destroy();
    };
    for (const socket of [client, upstream]) {
      sockets.add(socket);
      socket.on('error', cutBoth).on('close', cutBoth);
    }
    /** How many answers PostgreSQL owes, and how many of them the client still gets; undefined: all. */
    let owed = 0;
    let last: number | undefined;
    const onStatement = (text: string): boolean => {
      owed++;
      if (!armed || armed.text !== undefined || ++armed.seen < armed.at) return true;
      armed.text = text;
      if (armed.cut === 'before') return false;
      last = owed;
      return true;
    };
    let isParsed = false;
    const fromClient = createFrames(true);
    client.on('data', (chunk: Buffer) => {
      for (const { type, body, bytes } of fromClient(chunk)) {
        const text = type === 'Q' ? textAt(body, 0) : type === 'P' ? textAt(body, body.indexOf(0) + 1) : undefined;
        // A statement that is prepared already begins with its bind message, which names the statement.
        const isBind = type === 'B' && !isParsed;
        isParsed = type === 'P';
        if ((text !== undefined || isBind) && !onStatement(text ?? `bind ${textAt(body, body.indexOf(0) + 1)}`)) {
          cutBoth();
          return;
        }
        upstream.write(bytes);
      }
    });
    const fromServer = createFrames(false);
    upstream.on('data', (chunk: Buffer) => {
      for (const { type, bytes } of fromServer(chunk)) {
        const isEnd = type === 'Z';
        // The first one ends the login.
        if (isEnd && owed > 0 && last !== undefined && --last === 0) {
          cutBoth();
          return;
        }
        if (isEnd && owed > 0) owed--;
        client.write(bytes);
      }
    });
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  return {
    url: `postgres://postgres@127.0.0.1:${port}/${database}`,
    arm: (at, cut) => {
      armed = { at, cut, seen: 0, text: undefined };
    },
    disarm: () => {
      const text = armed?.text;
      armed = undefined;
      return text;
    },
    close: () => {
      server.close();
      for (const socket of sockets) socket.destroy();
    },
  };
}

const textAt = (body: Buffer, start: number): string => body.toString('utf8', start, body.indexOf(0, start));

type Frame = { type: string; body: Buffer; bytes: Buffer };

/** Splits a stream into the messages of PostgreSQL's protocol. The first message of a client has no type. */
function createFrames(isClient: boolean): (chunk: Buffer) => Frame[] {
  let rest: Buffer = Buffer.alloc(0);
  let hasType = !isClient;
  return (chunk) => {
    rest = Buffer.concat([rest, chunk]);
    const frames: Frame[] = [];
    for (;;) {
      const head = hasType ? 1 : 0;
      if (rest.length < head + 4) return frames;
      const size = head + rest.readInt32BE(head);
      if (rest.length < size) return frames;
      const bytes = rest.subarray(0, size);
      frames.push({ type: hasType ? String.fromCharCode(bytes[0] ?? 0) : '', body: bytes.subarray(head + 4), bytes });
      rest = rest.subarray(size);
      hasType = true;
    }
  };
}
