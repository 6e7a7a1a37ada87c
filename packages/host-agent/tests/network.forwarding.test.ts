// Tests that the service makes the host forward packets of machines, but no other packets that the host did not forward
// before. The test process stands for a host with two networks: one leads to the internet, and one to a computer that
// must not be reached through the host.
import assert from 'node:assert/strict';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, afterEach, before, beforeEach, describe, it } from 'node:test';
import { createLog } from '@sandbar/logging/log.ts';
import { BridgeNetwork } from '../src/network/bridge-network.ts';
import { Forwarding } from '../src/network/forwarding.ts';
import { readHostRoutes } from '../src/network/host-routes.ts';
import { networkNames, tapOf } from '../src/network/names.ts';
import { chooseSubnet, parseSubnet } from '../src/network/subnet.ts';
import { UDP_PORT } from './support/frames.ts';
import { enterOwnNetwork } from './support/own-network.ts';
import { must, Outside, Speaker, TapMachine, tcpScript } from './support/wire.ts';

const SUBNET = '10.123.0.0/16';
const VM = '00000000000a';
const [UPLINK, LAN] = ['sbxout', 'sbxlan'];
const LAN_COMPUTER = '192.168.50.2';
const LISTEN = `const udp = require('node:dgram').createSocket('udp4', (text) => console.log(String(text)));
  udp.bind(${UDP_PORT}, () => console.log('ready'));`;

const canIsolate = process.getuid?.() === 0 && existsSync('/dev/net/tun');

describe('forwarding', { skip: !canIsolate }, () => {
  let home: string;
  let network: BridgeNetwork;
  let outside: Outside;
  let computer: Speaker;
  let machine: TapMachine;

  before(async () => {
    enterOwnNetwork();
    outside = await Outside.behind(UPLINK, []);
    computer = new Speaker('unshare', ['--net', '--', process.execPath, '-e', LISTEN]);
    await computer.waitFor((line) => line === 'ready');
    const lines = [
      `link add ${LAN} type veth peer name eth0 netns ${computer.pid}`,
      `address add 192.168.50.1/24 dev ${LAN}`,
      `link set ${LAN} up`,
    ];
    must('ip', ['-batch', '-'], lines.join('\n'));
    const inside = [`address add ${LAN_COMPUTER}/24 dev eth0`, 'link set eth0 up'];
    must('nsenter', [`--net=/proc/${computer.pid}/ns/net`, 'ip', '-batch', '-'], inside.join('\n'));
  });
  after(async () => {
    await outside.end();
    await computer.end();
  });
  beforeEach(async () => {
    home = mkdtempSync(join(tmpdir(), 'sandbar-network-'));
  });
  afterEach(async () => {
    await machine.end();
    await network.remove();
    rmSync(home, { recursive: true });
    set('ip_forward', '0');
  });

  async function start(): Promise<void> {
    const log = createLog({ process: 'test', level: 'silent' });
    const options = { assigned: new Map(), allow: [], rateMbit: undefined, connections: 4096, log };
    network = await BridgeNetwork.create(home, parseSubnet(SUBNET), () => [Outside.address], options);
    await network.attach(VM, 0);
    machine = await TapMachine.open(tapOf(VM));
    await network.assign(VM, '10.123.0.10');
    machine.configure('10.123.0.10', 16, network.gateway);
  }

  const read = (name: string) => readFileSync(`/proc/sys/net/ipv4/${name}`, 'utf8').trim();
  const set = (name: string, value: string) => writeFileSync(`/proc/sys/net/ipv4/${name}`, value);
  const forwarding = (name: string) => `conf/${name}/forwarding`;
  const internet = () => machine.run(tcpScript(Outside.address, UDP_PORT));
  /** Sends a datagram from the internet to the computer, with the host under test as its router. */
  const intrude = (text: string) =>
    outside.run(
      `const s = require('node:dgram').createSocket('udp4'); s.send('${text}', ${UDP_PORT}, '${LAN_COMPUTER}', () => s.close())`,
    );

  it('a host that forwarded nothing forwards for machines only (NET-3)', async () => {
    await start();
    assert.equal(await internet(), 'welcome');
    await intrude('intruder');
    assert.equal(read('ip_forward'), '0');

    // The owner makes the host a router. This also shows that the path to the computer works.
    set('ip_forward', '1');
    await network.followHost();
    assert.equal(await internet(), 'welcome');
    await intrude('visitor');
    await computer.waitFor((line) => line === 'visitor');

    set('ip_forward', '0');
    await network.followHost();
    assert.equal(await internet(), 'welcome');
    await intrude('late-intruder');
    set('ip_forward', '1');
    await network.followHost();
    await intrude('late-visitor');
    await computer.waitFor((line) => line === 'late-visitor');
    assert.deepEqual(
      computer.said.filter((line) => line.includes('intruder')),
      [],
    );
  });

  it('interfaces are as they were before when the network is removed (NET-3)', async () => {
    await start();
    assert.deepEqual([read(forwarding(UPLINK)), read(forwarding(LAN))], ['1', '1']);
    await network.remove();
    assert.deepEqual([read(forwarding(UPLINK)), read(forwarding(LAN))], ['0', '0']);
  });

  it('an interface for which the owner wants forwarding forwards as before (NET-3)', async () => {
    set(forwarding(UPLINK), '1');
    await start();
    await intrude('wanted');
    await computer.waitFor((line) => line === 'wanted');
    assert.equal(await internet(), 'welcome');
    await network.remove();
    assert.equal(read(forwarding(UPLINK)), '1');
    set(forwarding(UPLINK), '0');
  });

  it('the next agent knows which interfaces forward only for machines, also when one is down (NET-3)', async () => {
    await start();
    const next = new Forwarding(networkNames(home).bridge, join(home, 'forwarding.json'));
    assert.deepEqual(next.claim(), [LAN, UPLINK]);
    must('ip', ['link', 'set', LAN, 'down']);
    assert.deepEqual(next.claim(), [LAN, UPLINK]);
    must('ip', ['link', 'set', LAN, 'up']);
    writeFileSync(join(home, 'forwarding.json'), '');
    assert.deepEqual(next.claim(), [], 'a record that a power cut left empty');
    for (const name of [LAN, UPLINK]) set(forwarding(name), '0');
  });

  it('the subnet of machines is no part of a network that a VPN routes in a table of its own (NET-3)', async () => {
    await start();
    must('ip', ['route', 'add', '10.0.0.0/8', 'via', LAN_COMPUTER, 'table', '52']);
    try {
      assert.match(chooseSubnet(home, readHostRoutes().used), /^172\./);
    } finally {
      must('ip', ['route', 'flush', 'table', '52']);
    }
  });
});
