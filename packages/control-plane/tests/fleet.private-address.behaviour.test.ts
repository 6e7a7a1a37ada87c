// Tests that no client sees the private address of a host, above all when the host cannot be reached.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { type AddressInfo, createServer } from 'node:net';
import { after, describe, it } from 'node:test';
import { createHostClient } from '../src/hosts/client.ts';
import { portClient } from './support/port-client.ts';
import { tryConnect } from './support/terminal-client.ts';
import { startTestBed } from './support/test-bed.ts';

/** An address of the loopback network that nothing else here uses. */
const ADDRESS = '127.77.66.55';
const HOST_ID = '019a0000-0000-7000-8000-0000000000aa';

const bed = await startTestBed({ timing: { operationWaitMs: 200, runningWaitMs: 200, shutdownMs: 100 } });
const { api, plane } = bed;
const { fleet, hosts } = plane.app;
const machine = (await api('POST', '/v1/machines')).json.id;
const stopped = (await api('POST', '/v1/machines')).json.id;
await api('POST', `/v1/machines/${stopped}/stop`);
const job = (await api('POST', `/v1/machines/${machine}/execs`, { body: { command: 'sleep' } })).json.id;
const { fetchText } = portClient(bed, machine);

/** Makes the control plane look for its host at an address, from now on. */
function moveHost(port: number): void {
  const client = createHostClient(fleet.targetOf({ id: HOST_ID, address: `${ADDRESS}:${port}` }));
  hosts.client = () => client;
  after(() => client.close());
}

/** Sends requests of all kinds, and returns everything that their answers say, with their statuses. */
async function askEverything(): Promise<{ statuses: number[]; texts: string[] }> {
  const base = `/v1/machines/${machine}`;
  const terminal = async () => {
    const { ticket } = (await api('POST', `${base}/terminal-session`, { body: {} })).json;
    return tryConnect(plane, machine, ticket);
  };
  const answers = await Promise.all([
    api('POST', `${base}/execs`, { body: { command: 'true' } }),
    api('GET', `${base}/execs/${job}?wait_ms=1`),
    api('GET', `${base}/execs/${job}/output`),
    api('POST', `${base}/execs/${job}/cancel`),
    api('GET', `${base}/files?path=/`),
    api('GET', `${base}/files/content?path=/x`),
    api('PUT', `${base}/files/content?path=/x`, { rawBody: 'x', headers: { 'content-type': 'text/plain' } }),
    api('GET', `${base}/ports`),
    api('GET', `${base}/terminals`),
    api('POST', `${base}/snapshots`, { body: {} }),
    api('POST', `/v1/machines/${stopped}/start`),
    api('POST', '/v1/machines', { body: {} }),
    api('POST', '/v1/volumes', { body: { name: 'data', size_gb: 1 } }),
    api('GET', '/v1/activity'),
    api('GET', '/v1/machines'),
    api('GET', base),
  ]);
  const [refused, shown] = await Promise.all([terminal(), fetchText(8000)]);
  assert('json' in refused);
  const texts = answers.map(({ headers, text }) => `${JSON.stringify([...headers])} ${text}`);
  texts.push(
    JSON.stringify([refused.headers, refused.json]),
    `${JSON.stringify(shown.response.rawHeaders)} ${shown.text}`,
  );
  return { statuses: [...answers.map(({ status }) => status), refused.status, shown.status ?? 0], texts };
}

async function checkTexts(port: number): Promise<void> {
  const { statuses, texts } = await askEverything();
  const unavailable = statuses.filter((status) => status === 503);
  assert(unavailable.length >= 8, JSON.stringify(statuses));
  for (const text of texts) {
    for (const secret of [ADDRESS, String(port), HOST_ID, 'ECONN', 'ERR_', 'certificate', 'SSL']) {
      assert(!text.includes(secret), `${secret} in ${text}`);
    }
  }
}

describe('the private address of a host', () => {
  it('is in no answer when the host refuses connections', async () => {
    const gone = createServer().listen(0, ADDRESS);
    await once(gone, 'listening');
    const { port } = gone.address() as AddressInfo;
    gone.close();
    moveHost(port);
    await checkTexts(port);
    assert(bed.logged().includes(`${ADDRESS}:${port}`), 'the log of the operator has the address');
  });

  it('is in no answer when something else than the host answers at its address', async () => {
    const other = createServer((socket) => socket.on('error', () => undefined).end('220 mail\r\n')).listen(0, ADDRESS);
    await once(other, 'listening');
    after(() => other.close());
    const { port } = other.address() as AddressInfo;
    moveHost(port);
    await checkTexts(port);
  });
});
