// Root in a real machine tries to reach other machines, the host and the internet, and to use foreign addresses. Frames
// that no kernel would send are tested in packages/host-agent/tests/network.isolation.test.ts.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect, createServer, type Socket } from 'node:net';
import { networkInterfaces } from 'node:os';
import { after, before, describe, it } from 'node:test';
import type { Machine } from '@sandbar/contract/machine.ts';
import { macOfIp } from '@sandbar/host-agent/network/subnet.ts';
import { createAt } from './support/addresses.ts';
import { IS_ROOT, pinnedTaps, run, tapOf } from './support/host.ts';
import { createMachine, destroyMachine, sh, startExec, until } from './support/service.ts';

const PORT = 7000;
const SMALL = { memory_mb: 256, rootfs_size_gb: 2 };
/** Python program that sends `hello` to every client and prints the client's address. */
const LISTENER = `import socket
s = socket.create_server(("", ${PORT}))
while True:
  c, peer = s.accept()
  c.sendall(b"hello\\n")
  print("from", peer[0], flush=True)`;
/** How long a probe waits for an answer before it counts as silence. Allowed answers arrive within milliseconds. */
const SILENCE_SEC = 1;

describe('network of machines', { skip: !IS_ROOT && 'without root machines have QEMU user networking' }, () => {
  let machine: Machine;
  let other: Machine;
  let gateway: string;
  before(async () => {
    [machine, other] = await Promise.all([createMachine(SMALL), createMachine(SMALL)]);
    gateway = addressOf(machine).replace(/\.\d+\.\d+$/, '.0.1');
    await Promise.all([machine, other].map(({ id }) => startExec(id, { argv: ['python3', '-c', LISTENER] })));
    for (const listening of [machine, other])
      await until('it listens', async () => (await greetingOf(addressOf(listening))) === 'hello\n');
  });
  after(() => Promise.all([machine, other].map(({ id }) => destroyMachine(id))));

  it('two machines do not reach each other, on the bridge or through the host, either way (NET-1)', async () => {
    for (const [from, to] of [
      [machine, other],
      [other, machine],
    ] as const) {
      const target = addressOf(to);
      const probes = [
        'true',
        `ip neigh replace ${target} lladdr ${macOfIp(target)} dev eth0 nud permanent`,
        `ip neigh del ${target} dev eth0; ip route add ${target}/32 via ${gateway}`,
      ];
      for (const prepare of probes) {
        const { stdout } = await sh(from.id, `${prepare}; ${probe([`tcp ${target} ${PORT}`, `icmp ${target}`])}`);
        assert.doesNotMatch(stdout, /open|answer/, prepare);
        assert.match(stdout, /tcp .*\nicmp /s);
      }
      await sh(from.id, `ip route del ${target}/32 via ${gateway}`);
      assert.equal(await greetingOf(addressOf(to)), 'hello\n', 'the host can still reach the machine');
    }
  });

  it('root in a machine that takes another address or MAC is not heard, and its neighbour keeps its own (NET-1, NET-2)', async () => {
    const [own, stolen] = [addressOf(machine), addressOf(other)];
    const free = own.replace(/\d+\.\d+$/, '250.250');
    const asked = `dns ${gateway}`;
    for (const address of [stolen, free]) {
      const { stdout } = await sh(
        machine.id,
        `ip address add ${address}/16 dev eth0; ${probe([`${asked} ${address}`, asked])}; ip address del ${address}/16 dev eth0`,
      );
      assert.equal(stdout, `${asked} ${address}: silence\n${asked}: answer\n`);
    }
    for (const mac of [macOfIp(stolen), '02:00:00:00:00:99']) {
      const { stdout } = await sh(
        machine.id,
        `ip link set dev eth0 address ${mac}; ${probe([asked])}; ip link set dev eth0 address ${macOfIp(own)}; ${probe([asked])}`,
      );
      assert.equal(stdout, `${asked}: silence\n${asked}: answer\n`);
    }
    assert.equal(await greetingOf(addressOf(other)), 'hello\n');
    assert.equal(await greetingOf(addressOf(machine)), 'hello\n');
  });

  it("no port of the host is reached on any of its addresses, nor a cloud's metadata; names are answered (NET-3)", async () => {
    let heard = 0;
    const server = createServer((socket) => {
      heard++;
      socket.end();
    }).listen(0, '0.0.0.0');
    await once(server, 'listening');
    const { port } = server.address() as { port: number };
    try {
      const addresses = Object.values(networkInterfaces())
        .flatMap((all) => all ?? [])
        .filter(({ family }) => family === 'IPv4')
        .map(({ address }) => address);
      assert.ok(addresses.includes(gateway) && addresses.includes('127.0.0.1'));
      // Without these local routes the guest sends packets for 127.0.0.1 to the host, which must drop them too.
      const trick = `sysctl -qw net.ipv4.conf.all.route_localnet=1; ip route del table local local 127.0.0.0/8 dev lo;
        ip route del table local local 127.0.0.1 dev lo; ip route add 127.0.0.0/8 via ${gateway} dev eth0 src ${addressOf(machine)}`;
      const { stdout } = await sh(
        machine.id,
        `${trick}; ip route get 127.0.0.1; ${probe([...addresses.map((address) => `tcp ${address} ${port}`), 'tcp 169.254.169.254 80', `dns ${gateway}`])};
         ip route del 127.0.0.0/8 via ${gateway}; ip link set lo down; ip link set lo up`,
      );
      assert.match(stdout, new RegExp(`^127\\.0\\.0\\.1 .*via ${gateway}`), 'the guest routes 127.0.0.1 to the host');
      assert.doesNotMatch(stdout, /open/);
      assert.match(stdout, new RegExp(`dns ${gateway}: answer`));
      assert.equal(heard, 0);
      // Check that the server does listen on each address: the host itself can connect.
      for (const address of addresses) await once(connect(port, address), 'connect');
      await until('the server has accepted all connections of the host', () => heard === addresses.length);
    } finally {
      server.close();
    }
  });

  it('who gets the address of a machine that is gone gets its rules, and none of its connections (NET-4, NET-5)', async () => {
    const old = await createMachine(SMALL);
    const address = addressOf(old);
    await startExec(old.id, { argv: ['python3', '-c', LISTENER] });
    await until('it listens', async () => (await greetingOf(addressOf(old))) === 'hello\n');
    const kept = connect(PORT, address);
    await once(kept, 'data');
    const remembered = () => run('conntrack', ['-L', '--orig-dst', address]).stdout;
    assert.match(remembered(), new RegExp(`dport=${PORT}`));
    const tap = tapOf(old.id);
    assert.equal(pinnedTaps().get(tap), `${macOfIp(address)} ${address}`);

    await destroyMachine(old.id);
    assert.doesNotMatch(remembered(), new RegExp(`dport=${PORT}`));
    assert.equal(pinnedTaps().has(tap), false);
    assert.doesNotMatch(run('ip', ['neigh']).stdout, new RegExp(`${address.replaceAll('.', '\\.')} .*lladdr`));

    const next = await createAt(address);
    try {
      assert.equal(pinnedTaps().get(tapOf(next.id)), `${macOfIp(address)} ${address}`);
      await next.startJob(['python3', '-c', LISTENER]);
      await until('it listens', async () => (await greetingOf(address)) === 'hello\n');
      const end = endOf(kept);
      kept.write('from before\n');
      assert.equal(await end, 'ECONNRESET');
      const isConnected = `ss -tnH state established '( sport = :${PORT} )' | grep ':${kept.localPort} '`;
      assert.equal(await next.exitCodeOf(['sh', '-c', isConnected]), 1);
    } finally {
      kept.destroy();
      await next.destroy();
    }
  });
});

function addressOf({ private_ip }: Machine): string {
  assert.ok(private_ip);
  return private_ip;
}

/** Connects from the host to a machine's listener and returns its greeting, or an empty string without an answer. */
function greetingOf(address: string): Promise<string> {
  return new Promise((resolve) => {
    const socket = connect({ port: PORT, host: address, timeout: 2000 });
    const settle = (said: string) => {
      resolve(said);
      socket.destroy();
    };
    socket.once('data', (data) => settle(String(data)));
    for (const event of ['error', 'timeout', 'close']) socket.once(event, () => settle(''));
  });
}

/** Resolves when the connection ends: with the code of its error, or with `closed` when there was no error. */
function endOf(socket: Socket): Promise<string> {
  return new Promise((resolve) => {
    socket.once('error', (error: NodeJS.ErrnoException) => resolve(error.code ?? error.message));
    socket.once('close', () => resolve('closed'));
  });
}

/**
 * A shell command that tries all of `targets` at once and prints a line for each, in order:
 * `tcp ADDRESS PORT`, `icmp ADDRESS`, or `dns SERVER [SOURCE]`.
 */
function probe(targets: readonly string[]): string {
  const script = `import socket, struct, sys, threading
def tcp(address, port):
  s = socket.socket(); s.settimeout(${SILENCE_SEC})
  try: s.connect((address, int(port))); return "open"
  except Exception as e: return type(e).__name__
def echo(kind, protocol, packet, to, source=""):
  s = socket.socket(socket.AF_INET, kind, protocol); s.settimeout(${SILENCE_SEC})
  try:
    if source: s.bind((source, 0))
    s.connect(to); s.send(packet); s.recv(2048); return "answer"
  except Exception as e: return "silence"
def icmp(address): return echo(socket.SOCK_RAW, socket.IPPROTO_ICMP, struct.pack("!BBHHH", 8, 0, 0xf7fd, 1, 1), (address, 0))
def dns(server, source=""):
  query = struct.pack("!6H", 7, 256, 1, 0, 0, 0) + b"\\x09localhost\\0\\0\\x01\\0\\x01"
  return echo(socket.SOCK_DGRAM, 0, query, (server, 53), source)
results = {}
def one(target):
  kind, *rest = target.split()
  results[target] = {"tcp": tcp, "icmp": icmp, "dns": dns}[kind](*rest)
threads = [threading.Thread(target=one, args=(t,)) for t in sys.argv[1:]]
for t in threads: t.start()
for t in threads: t.join()
for t in sys.argv[1:]: print(t + ":", results.get(t))`;
  return `python3 -c '${script}' ${targets.map((target) => `'${target}'`).join(' ')}`;
}
