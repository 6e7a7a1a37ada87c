// Tests how much of its host's network one machine can use up: entries of the connection tracking, and time for name
// queries.
import assert from 'node:assert/strict';
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, afterEach, before, beforeEach, describe, it } from 'node:test';
import { reservedUids, uidRange } from '../src/jail/uid-pool.ts';
import { BridgeNetwork, type BridgeOptions } from '../src/network/bridge-network.ts';
import { Firewall } from '../src/network/firewall.ts';
import { limitsTable, RELAY_PACKETS_PER_SEC } from '../src/network/machine-limits.ts';
import { networkNames, tapOf } from '../src/network/names.ts';
import { macOfIp, parseSubnet } from '../src/network/subnet.ts';
import { UDP_PORT, udpFrame } from './support/frames.ts';
import { enterOwnNetwork } from './support/own-network.ts';
import { A, B, GATEWAY, IP_A, IP_B, OPEN, SUBNET } from './support/two-machines.ts';
import { Ear, must, NAMED_ADDRESS, nameScript, Outside, type Speaker, TapMachine, tcpScript } from './support/wire.ts';

const canIsolate = process.getuid?.() === 0 && existsSync('/dev/net/tun');

/** A Node script that sends one datagram to each of `count` ports of an address, and prints how many it sent. */
const flood = (to: string, count: number) => `
  const socket = require('node:dgram').createSocket('udp4').on('error', () => {}); let sent = 0;
  const next = () => sent === ${count} ? (console.log(sent), socket.close())
    : socket.send('x', 1024 + sent++, '${to}', () => setImmediate(next));
  next();`;

describe('what one machine may use up', { skip: !canIsolate }, () => {
  let home: string;
  let network: BridgeNetwork;
  let outside: Outside;
  const speakers: Speaker[] = [];

  before(async () => {
    enterOwnNetwork();
    outside = await Outside.behind('sbxout', []);
  });
  after(() => outside.end());
  beforeEach(() => {
    home = mkdtempSync(join(tmpdir(), 'sandbar-network-'));
  });
  afterEach(async () => {
    await Promise.all(speakers.splice(0).map((speaker) => speaker.end()));
    await network.remove();
    rmSync(home, { recursive: true });
  });

  async function start(options: Partial<BridgeOptions> = {}): Promise<void> {
    network = await BridgeNetwork.create(home, parseSubnet(SUBNET), () => [Outside.address], { ...OPEN, ...options });
  }

  async function machineWith(vmId: string, ip: string): Promise<TapMachine> {
    await network.attach(vmId, 0);
    const machine = await TapMachine.open(tapOf(vmId));
    speakers.push(machine);
    await network.assign(vmId, ip);
    machine.configure(ip, 16, GATEWAY);
    return machine;
  }

  /** Returns how many connections from an address the host's connection tracking has. */
  const remembered = (ip: string) => Number(must('sh', ['-c', `conntrack -L --orig-src ${ip} 2>/dev/null | wc -l`]));

  it('a machine that opens endless connections fills only its share of the connection tracking, and its neighbour connects (RES-2)', async () => {
    await start({ connections: 200 });
    const [a, b] = [await machineWith(A, IP_A), await machineWith(B, IP_B)];
    assert.equal(await a.run(flood(Outside.address, 30_000)), '30000');
    assert.ok(remembered(IP_A) <= 200, `${remembered(IP_A)} connections of the machine are remembered`);
    assert.equal(await a.run(tcpScript(Outside.address, UDP_PORT)), 'ECONNREFUSED', 'the machine has used its share');
    assert.equal(await a.run(tcpScript(GATEWAY, 53)), 'ECONNREFUSED', 'connections to the host count too');
    assert.equal(await b.run(tcpScript(Outside.address, UDP_PORT)), 'welcome');
    must('conntrack', ['-D', '--orig-src', IP_A]);
    assert.equal(await a.run(tcpScript(Outside.address, UDP_PORT)), 'welcome', 'the share is free again');
  });

  it('a new agent gives no machine a second share of the connection tracking (RES-2)', async () => {
    await start({ connections: 200 });
    const a = await machineWith(A, IP_A);
    assert.equal(await a.run(flood(Outside.address, 1000)), '1000');
    const full = remembered(IP_A);
    assert.ok(full > 0 && full <= 200);
    const { bridge, table, group } = networkNames(home);
    const uids = { uids: uidRange(home), relayUid: reservedUids(home).nameRelay };
    const rules = { bridge, table, group, subnet: SUBNET, gateway: GATEWAY, ...uids };
    const next = await Firewall.create(
      { ...rules, allow: [], rateMbit: undefined, connections: 200 },
      { networks: [], claimed: [] },
      new Map([[tapOf(A), IP_A]]),
    );
    assert.equal(await a.run(flood(Outside.address, 1000)), '1000');
    assert.ok(remembered(IP_A) <= 200, `${remembered(IP_A)} connections of the machine are remembered`);
    await next.remove();
  });

  it('the kernel drops what a machine sends to the name relay too fast, before the relay has to read it (RES-3)', async () => {
    await start();
    const [a, b] = [await machineWith(A, IP_A), await machineWith(B, IP_B)];
    const { bridge, table } = networkNames(home);
    const ear = await Ear.on(bridge);
    speakers.push(ear);
    const own = { from: IP_A, fromMac: macOfIp(IP_A), to: GATEWAY, toMac: macOfIp(GATEWAY) };
    const query = udpFrame({ ...own, port: 53, text: 'no message' });
    const [frames, began] = [20_000, performance.now()];
    for (let count = 0; count < frames; count++) a.send(query);
    a.send(udpFrame({ ...own, text: 'flood-end' }));
    await ear.waitForText('flood-end');
    const may = RELAY_PACKETS_PER_SEC * (1 + (performance.now() - began) / 1000);
    const chain = must('nft', ['list', 'chain', 'inet', limitsTable(table), 'count_relay_packet']);
    const dropped = Number(/counter packets (\d+)/.exec(chain)?.[1]);
    assert.ok(dropped > 0 && frames - dropped <= may, `${dropped} of ${frames} packets were dropped`);
    assert.equal(await b.run(nameScript(GATEWAY, 'neighbour.test')), NAMED_ADDRESS);
  });
});
