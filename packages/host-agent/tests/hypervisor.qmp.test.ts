// Tests the monitor's client with a QEMU that hangs or is compromised.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect, createServer, type Socket } from 'node:net';
import { after, before, describe, it } from 'node:test';
import { QmpClient } from '../src/hypervisor/qmp.ts';

describe('QMP client', () => {
  const path = `/tmp/sandbar-qmp-${process.pid}.sock`;
  const server = createServer();
  const sockets: Socket[] = [];
  before(() => new Promise<void>((resolve) => server.listen(path, resolve)));
  after(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });

  async function connectPair(): Promise<{ host: Socket; qemu: Socket }> {
    const accepted = once(server, 'connection');
    const host = connect(path);
    const [qemu] = (await accepted) as [Socket];
    sockets.push(host, qemu);
    return { host, qemu };
  }

  async function openClient(): Promise<{ client: QmpClient; host: Socket; qemu: Socket }> {
    const { host, qemu } = await connectPair();
    const opening = QmpClient.open(host);
    await once(qemu, 'data');
    qemu.write('{"QMP": {}}\n{"return": {}, "id": 1}\n');
    return { client: await opening, host, qemu };
  }

  it('delivers answers, errors and events to the right receivers, however the bytes are split', async () => {
    const { client, qemu } = await openClient();
    const answers = Promise.allSettled([client.execute('one'), client.execute('two')]);
    const event = once(client, 'event');
    const lines = '{"error": {"class": "x", "desc": "no"}, "id": 3}\n{"event": "STOP"}\n{"return": "über", "id": 2}\n';
    for (const byte of Buffer.from(lines)) qemu.write(Buffer.from([byte]));
    const [one, two] = await answers;
    assert.deepEqual(one, { status: 'fulfilled', value: 'über' });
    assert.match(String(two.status === 'rejected' && two.reason), /QEMU refused: no/);
    assert.deepEqual(await event, ['STOP', {}]);
  });

  it('a monitor that never answers is given up and closed', async () => {
    const { host } = await connectPair();
    await assert.rejects(QmpClient.open(host, 50), /did not answer qmp_capabilities/);
    assert.ok(host.destroyed);
  });

  it('a line without an end closes the connection', async () => {
    const { client, host, qemu } = await openClient();
    const closed = once(client, 'close');
    const waiting = assert.rejects(client.execute('query-status'), /monitor closed/);
    qemu.on('error', () => {});
    qemu.write(Buffer.alloc(2 * 1024 * 1024, 'x'));
    await Promise.all([closed, waiting]);
    assert.ok(host.destroyed);
  });
});
