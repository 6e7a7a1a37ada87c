// Tests the client's connections to ports of machines. A fake service in this process behaves as each test says.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, type IncomingMessage } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Duplex } from 'node:stream';
import { text } from 'node:stream/consumers';
import { after, describe, it } from 'node:test';
import { END_OF_BYTES } from '@sandbar/contract/port-bounds.ts';
import { type WebSocket, WebSocketServer } from 'ws';
import { Ports } from './ports.ts';
import { Transport } from './transport.ts';

let serve: (socket: WebSocket) => void = () => {};
let refusal: string | undefined;
const asked: string[] = [];
const webSockets = new WebSocketServer({ noServer: true });
const server = createServer();
server.on('upgrade', (request: IncomingMessage, socket: Duplex, head: Buffer) => {
  asked.push(`${request.url} ${request.headers.authorization}`);
  if (refusal !== undefined) {
    socket.end(
      `HTTP/1.1 502 No\r\ncontent-type: application/json\r\ncontent-length: ${refusal.length}\r\n\r\n${refusal}`,
    );
  } else webSockets.handleUpgrade(request, socket, head, (webSocket) => serve(webSocket));
});
server.listen(0, '127.0.0.1');
await once(server, 'listening');
const baseUrl = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
after(() => {
  for (const socket of webSockets.clients) socket.terminate();
  server.close();
});
const connect = () => new Ports(new Transport({ baseUrl, apiKey: 'k' }), 'm').connect(22);

describe('a connection to a port', () => {
  it('carries short and long data in both directions, and the end of each direction', async () => {
    serve = (socket) => {
      let received = '';
      socket.on('message', (data, isBinary) => {
        if (isBinary) received += String(data);
        else if (String(data) === END_OF_BYTES)
          socket.send(Buffer.from(received.toUpperCase()), () => socket.close(1000));
      });
    };
    const connection = await connect();
    const sent = 'abc'.repeat(1024 * 1024);
    connection.end(sent);
    assert.equal(await text(connection), sent.toUpperCase());
    assert.deepEqual(asked, ['/v1/machines/m/ports/22/connect Bearer k']);
  });

  it('fails with the reason when the service closes it with an error or the connection breaks', async () => {
    serve = (socket) => socket.send(Buffer.from('half'), () => socket.close(4409, 'conflict: The machine is stopped.'));
    await assert.rejects(text(await connect()), (error: Error) => /The machine is stopped/.test(String(error.cause)));
    serve = (socket) => socket.send(Buffer.from('half'), () => socket.terminate());
    await assert.rejects(text(await connect()));
  });

  it('throws the error of the service when the service refuses it', async () => {
    refusal = JSON.stringify({ code: 'port_not_open', detail: 'Nothing in the machine listens on port 22.' });
    await assert.rejects(connect(), { code: 'port_not_open', status: 502 });
    refusal = undefined;
  });

  it('reads no more from the service while the caller reads nothing', async () => {
    serve = (socket) => {
      for (let count = 0; count < 512; count++) socket.send(Buffer.alloc(64 * 1024));
      socket.close(1000);
    };
    const connection = await connect();
    const [socket] = webSockets.clients;
    let before = -1;
    for (let same = 0; same < 5; ) {
      await new Promise((resolve) => setTimeout(resolve, 20));
      same = socket?.bufferedAmount === before ? same + 1 : 0;
      before = socket?.bufferedAmount ?? 0;
    }
    assert(before > 8 * 1024 * 1024, `${before} bytes wait at the service`);
    let read = 0;
    for await (const bytes of connection) read += bytes.length;
    assert.equal(read, 512 * 64 * 1024);
  });
});
