// Tests which packets machines can send and receive, with the real packet filter. Each machine is a process that holds
// its tap as QEMU would, with its own network stack. To show that a packet was dropped, a later packet on the same path
// must arrive.
import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { closeSync, existsSync, mkdtempSync, openSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { type AddressInfo, connect, createServer } from 'node:net';
import { networkInterfaces, tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, afterEach, before, beforeEach, describe, it } from 'node:test';
import { reservedUids, uidRange } from '../src/jail/uid-pool.ts';
import { BridgeNetwork, type BridgeOptions } from '../src/network/bridge-network.ts';
import { networkNames, tapOf } from '../src/network/names.ts';
import { NftSession } from '../src/network/nft-session.ts';
import { additions, BURST_BYTES } from '../src/network/rules.ts';
import { macOfIp, PLACEHOLDER_MAC, parseSubnet } from '../src/network/subnet.ts';
import { until } from './support/fake-host.ts';
import { arpFrame, ethernet, pingFrame, tagged, UDP_PORT, udpFrame } from './support/frames.ts';
import { nameQuery } from './support/name-server.ts';
import { enterOwnNetwork } from './support/own-network.ts';
import { A, B, GATEWAY, IP_A, IP_B, OPEN, SUBNET } from './support/two-machines.ts';
import {
  Ear,
  must,
  NAMED_ADDRESS,
  nameScript,
  Outside,
  openTapAs,
  type Speaker,
  TapMachine,
  tcpScript,
  udpScript,
} from './support/wire.ts';

/**
 * One address in each range that is not part of the internet, and those where clouds serve credentials. The outside
 * hosts have all of them.
 */
const DENIED = [
  '0.1.2.3',
  '10.9.9.9',
  '100.64.9.9',
  '100.100.100.200',
  '168.63.129.16',
  '169.254.169.254',
  '172.16.9.9',
  '192.0.0.9',
  '192.168.9.9',
  '198.18.9.9',
  '240.0.0.9',
];
const REFUSED = 'ECONNREFUSED';

const canIsolate = process.getuid?.() === 0 && existsSync('/dev/net/tun');

describe('network isolation', { skip: !canIsolate }, () => {
  let home: string;
  let network: BridgeNetwork;
  const networks: BridgeNetwork[] = [];
  let outside: Outside;
  let bridge: string;
  const speakers: Speaker[] = [];

  before(async () => {
    enterOwnNetwork();
    outside = await Outside.behind('sbxout', DENIED);
  });
  after(() => outside.end());
  beforeEach(() => {
    home = mkdtempSync(join(tmpdir(), 'sandbar-network-'));
    bridge = networkNames(home).bridge;
  });
  afterEach(async () => {
    await Promise.all(speakers.splice(0).map((speaker) => speaker.end()));
    for (const made of networks.splice(0)) await made.remove();
    rmSync(home, { recursive: true });
  });

  async function start(options: Partial<BridgeOptions> = {}): Promise<BridgeNetwork> {
    network = await BridgeNetwork.create(home, parseSubnet(SUBNET), () => [Outside.address], { ...OPEN, ...options });
    networks.push(network);
    return network;
  }

  async function listen(device = bridge): Promise<Ear> {
    const ear = await Ear.on(device);
    speakers.push(ear);
    return ear;
  }

  async function plug(vmId: string): Promise<TapMachine> {
    await network.attach(vmId, 0);
    const machine = await TapMachine.open(tapOf(vmId));
    speakers.push(machine);
    return machine;
  }

  async function machineWith(vmId: string, ip: string): Promise<TapMachine> {
    const machine = await plug(vmId);
    await network.assign(vmId, ip);
    machine.configure(ip, 16, GATEWAY);
    return machine;
  }

  const toGateway = (ip: string, what: { to: string; text: string; port?: number }) =>
    udpFrame({ from: ip, fromMac: macOfIp(ip), toMac: macOfIp(GATEWAY), ...what });

  /** A valid packet to the gateway from the machine at `ip`. */
  const honest = (ip: string, text: string) => toGateway(ip, { to: GATEWAY, text });

  /** Returns the number of IP bytes in the received long frames. */
  const bytesOf = (speaker: Speaker) =>
    speaker.said.reduce((sum, line) => sum + (line.length > 1000 ? line.length / 2 - 14 : 0), 0);

  describe('who a machine may speak as', () => {
    /**
     * Connects to a port of 127.0.0.1 as a user. Returns `connected` or the error. `local`: more options of
     * IO::Socket::INET.
     */
    const connectAs = (uid: number, port: number, local = '') => {
      const script = `print IO::Socket::INET->new(PeerAddr => "127.0.0.1:${port}", ${local}) ? "connected" : "$!"`;
      const identity = [`--reuid=${uid}`, `--regid=${uid}`, '--clear-groups'];
      const args = [...identity, 'perl', '-MIO::Socket::INET', '-e', script];
      return spawnSync('setpriv', args, { cwd: '/', encoding: 'utf8' }).stdout;
    };

    async function listenOn(port: number): Promise<number> {
      const server = createServer().listen(port, '127.0.0.1').unref();
      speakers.push({ end: async () => void server.close() } as Speaker);
      await once(server, 'listening');
      return (server.address() as AddressInfo).port;
    }

    it('a process with the uid of a VM opens no connection of its own, and root does (ISO-2)', async () => {
      await start();
      const port = await listenOn(0);
      const { first, last } = uidRange(home);
      const outcomes = [first, last, 0].map((uid) => connectAs(uid, port));
      assert.deepEqual(outcomes, ['Connection refused', 'Connection refused', 'connected']);
    });

    it('the name relay opens connections to name servers only, and none from its own port (RES-3)', async () => {
      await start();
      const [port, names] = [await listenOn(0), await listenOn(53)];
      const { nameRelay, gateway } = reservedUids(home);
      assert.deepEqual(
        [connectAs(nameRelay, port), connectAs(nameRelay, names), connectAs(gateway, names)],
        ['Connection refused', 'connected', 'Connection refused'],
      );
      // Closing the network frees port 53 of the gateway address, but the rule that refuses connections from it stays.
      await network.close();
      const from = (local: number) => `LocalAddr => "${GATEWAY}:${local}", ReuseAddr => 1`;
      assert.deepEqual(
        [connectAs(0, port, from(53)), connectAs(0, port, from(54))],
        ['Connection refused', 'connected'],
      );
    });

    it('a frame that is not from the machine itself never reaches the host (NET-2)', async () => {
      await start();
      const a = await plug(A);
      await network.assign(A, IP_A);
      await network.assign(B, IP_B);
      const [macA, macB] = [macOfIp(IP_A), macOfIp(IP_B)];
      const good = { from: IP_A, fromMac: macA, to: GATEWAY, toMac: macOfIp(GATEWAY) };
      const arp = { fromMac: macA, senderMac: macA, sender: IP_A, target: GATEWAY };
      const lies: Record<string, Buffer> = {
        'lie-mac': udpFrame({ ...good, fromMac: macB, text: 'lie-mac' }),
        'lie-placeholder': udpFrame({ ...good, fromMac: PLACEHOLDER_MAC, text: 'lie-placeholder' }),
        'lie-ip': udpFrame({ ...good, from: IP_B, text: 'lie-ip' }),
        'lie-both': udpFrame({ ...good, from: IP_B, fromMac: macB, text: 'lie-both' }),
        'lie-foreign': udpFrame({ ...good, from: '198.51.100.1', text: 'lie-foreign' }),
        'lie-dhcp': udpFrame({ ...good, from: '0.0.0.0', to: '255.255.255.255', port: 67, text: 'lie-dhcp' }),
        'lie-arp-mac': arpFrame({ ...arp, senderMac: macB, text: 'lie-arp-mac' }),
        'lie-arp-ip': arpFrame({ ...arp, sender: IP_B, text: 'lie-arp-ip' }),
        'lie-arp-gateway': arpFrame({ ...arp, sender: GATEWAY, isReply: true, text: 'lie-arp-gateway' }),
        'lie-arp-ether': arpFrame({ ...arp, fromMac: macB, text: 'lie-arp-ether' }),
        'lie-arp-target': arpFrame({ ...arp, target: IP_B, text: 'lie-arp-target' }),
        'lie-vlan': tagged(udpFrame({ ...good, text: 'lie-vlan' })),
        'lie-double-vlan': tagged(tagged(udpFrame({ ...good, text: 'lie-double-vlan' }))),
        'lie-vlan-arp': tagged(arpFrame({ ...arp, text: 'lie-vlan-arp' })),
        'lie-ipv6': ethernet('33:33:00:00:00:01', macA, 0x86dd, Buffer.from(`${'\x60'.padEnd(40, '\0')}lie-ipv6`)),
        'lie-ethertype': ethernet(macOfIp(GATEWAY), macA, 0x88b5, Buffer.from('lie-ethertype')),
        'lie-802.3': ethernet(macOfIp(GATEWAY), macA, 64, Buffer.from('lie-802.3')),
      };
      const ear = await listen();
      for (const lie of Object.values(lies)) a.send(lie);
      a.send(arpFrame({ ...arp, text: 'true-arp' }));
      a.send(udpFrame({ ...good, text: 'true-udp' }));
      await ear.waitForText('true-arp');
      await ear.waitForText('true-udp');
      assert.deepEqual(
        Object.keys(lies).filter((text) => ear.heard(text)),
        [],
      );
      assert.doesNotMatch(must('bridge', ['fdb', 'show', 'br', bridge]), new RegExp(`${macB}.*${tapOf(A)}`));
    });

    it('a frame to a group address of 802.1D, which skips the bridge, is not taken for one of another machine (NET-2)', async () => {
      await start();
      const a = await plug(A);
      await network.assign(A, IP_A);
      await network.assign(B, IP_B);
      const query = { to: GATEWAY, port: 53 };
      const own = { ...query, from: IP_A, fromMac: macOfIp(IP_A) };
      for (let last = 0; last < 16; last++) {
        const toMac = `01:80:c2:00:00:0${last.toString(16)}`;
        const ask = (name: string) => nameQuery(`${name}-group-${last}`);
        a.send(udpFrame({ ...query, from: IP_B, fromMac: macOfIp(IP_B), toMac, text: ask('lie') }));
        a.send(udpFrame({ ...own, toMac, text: ask('own') }));
      }
      a.send(udpFrame({ ...own, toMac: macOfIp(GATEWAY), text: nameQuery('true-query') }));
      await outside.waitFor((line) => line === 'name true-query');
      assert.deepEqual(
        outside.said.filter((line) => line.includes('-group')),
        [],
      );
      assert.doesNotMatch(must('bridge', ['fdb', 'show', 'br', bridge]), new RegExp(`${macOfIp(IP_B)}.*${tapOf(A)}`));
    });

    it('a later claim of an address ends the earlier one (NET-2)', async () => {
      await start();
      const [a, b] = [await plug(A), await plug(B)];
      await network.assign(A, IP_A);
      await network.assign(B, IP_A);
      const ear = await listen();
      a.send(honest(IP_A, 'old-owner'));
      b.send(honest(IP_A, 'new-owner'));
      await ear.waitForText('new-owner');
      // The two taps are separate paths. So the old owner sends one more frame, whose arrival shows that the earlier
      // one was dropped.
      await network.assign(A, IP_B);
      a.send(honest(IP_B, 'old-owner-elsewhere'));
      await ear.waitForText('old-owner-elsewhere');
      assert.equal(ear.said.filter((line) => line.includes(Buffer.from('old-owner').toString('hex'))).length, 1);
      // A new address replaces the old one.
      a.send(honest(IP_A, 'first-address'));
      a.send(honest(IP_B, 'second-address'));
      await ear.waitForText('second-address');
      assert.equal(ear.heard('first-address'), false);
    });

    it('a tap is opened by its own user and no other (NET-2)', async () => {
      await start();
      await network.attach(A, 70_001);
      const tun = openSync('/dev/net/tun', 'r+');
      const other = openSync('/dev/net/tun', 'r+');
      assert.match(openTapAs(70_002, tapOf(A), other), /Operation not permitted/);
      assert.equal(openTapAs(70_001, tapOf(A), tun), '');
      closeSync(tun);
      closeSync(other);
    });
  });

  describe('what a machine may reach', () => {
    it('machines do not reach each other, neither on the bridge nor through the host (NET-1)', async () => {
      await start({ allow: ['10.0.0.0/8'] });
      const [a, b] = [await machineWith(A, IP_A), await machineWith(B, IP_B)];
      const ear = await listen();
      for (const [from, to, sender, receiver] of [
        [IP_A, IP_B, a, b],
        [IP_B, IP_A, b, a],
      ] as const) {
        const own = { from, fromMac: macOfIp(from), to };
        sender.send(udpFrame({ ...own, toMac: macOfIp(to), text: `direct-${to}` }));
        sender.send(udpFrame({ ...own, toMac: 'ff:ff:ff:ff:ff:ff', text: `broadcast-${to}` }));
        sender.send(udpFrame({ ...own, toMac: macOfIp(GATEWAY), text: `routed-${to}` }));
        await ear.waitForText(`routed-${to}`);
        const host = createSocket('udp4');
        host.send(`host-${to}`, UDP_PORT, to);
        await receiver.waitForText(`host-${to}`);
        host.close();
        for (const way of ['direct', 'broadcast', 'routed']) assert.equal(receiver.heard(`${way}-${to}`), false, way);
        assert.equal(await sender.run(`require('child_process').execSync('ip route add ${to} via ${GATEWAY}')`), '');
        assert.equal(await sender.run(tcpScript(to, UDP_PORT)), REFUSED);
      }
    });

    it('what is meant for one machine is not shown to another (NET-1)', async () => {
      await start();
      const [a, b] = [await machineWith(A, IP_A), await machineWith(B, IP_B)];
      // The bridge has not learnt A's MAC yet, so it floods this packet to all ports.
      must('ip', ['neigh', 'replace', IP_A, 'lladdr', macOfIp(IP_A), 'dev', bridge]);
      const host = createSocket('udp4');
      host.send('for-a', UDP_PORT, IP_A);
      await a.waitForText('for-a');
      host.send('for-b', UDP_PORT, IP_B);
      await b.waitForText('for-b');
      host.close();
      assert.equal(b.heard('for-a'), false);
    });

    it('the internet, names and the gateway are reached, and answer (NET-3)', async () => {
      await start();
      const a = await machineWith(A, IP_A);
      assert.equal(await a.run(tcpScript(Outside.address, UDP_PORT)), 'welcome');
      assert.equal(await a.run(udpScript(Outside.address, UDP_PORT, 'from-a')), 'answer');
      assert.ok(outside.said.includes(`udp ${Outside.hostAddress} from-a`), 'the address is translated');
      assert.equal(await a.run(nameScript(GATEWAY, 'small.test')), NAMED_ADDRESS);
      assert.equal(await a.run(nameScript(GATEWAY, 'big.test')), NAMED_ADDRESS);
      for (const line of ['name small.test', 'name over tcp big.test']) assert.ok(outside.said.includes(line), line);
      a.send(pingFrame({ from: IP_A, fromMac: macOfIp(IP_A), to: GATEWAY, toMac: macOfIp(GATEWAY), text: 'ping' }));
      // An ICMP error would also contain the text, so check that the frame is an echo reply.
      await a.waitFor(
        (line) => line.slice(2 * 34).startsWith('0000') && line.includes(Buffer.from('ping').toString('hex')),
      );
    });

    it('no range that is not the internet is reached, over TCP or UDP (NET-3)', async () => {
      await start();
      const a = await machineWith(A, IP_A);
      for (const address of DENIED) {
        assert.equal(
          must(process.execPath, ['-e', tcpScript(address, UDP_PORT)]).trim(),
          'welcome',
          `host: ${address}`,
        );
        assert.equal(await a.run(tcpScript(address, UDP_PORT, 'denied')), REFUSED, address);
        a.send(toGateway(IP_A, { to: address, text: 'denied' }));
      }
      assert.equal(await a.run(udpScript(Outside.address, UDP_PORT, 'last')), 'answer');
      assert.deepEqual(
        outside.said.filter((line) => line.includes('denied')),
        [],
      );
    });

    it('no network that the host itself is in is reached, unless the configuration allows it (RES-4)', async () => {
      await start();
      const a = await machineWith(A, IP_A);
      const told = (text: string) => outside.said.some((line) => line.endsWith(text));
      assert.equal(await a.run(tcpScript(Outside.neighbour, UDP_PORT)), REFUSED);
      a.send(toGateway(IP_A, { to: Outside.neighbour, text: 'to-neighbour' }));
      assert.equal(await a.run(udpScript(Outside.address, UDP_PORT)), 'answer', 'the internet behind it is reached');
      assert.equal(told('to-neighbour'), false);
      await network.remove();
      await start({ allow: ['203.0.113.0/24'] });
      const b = await machineWith(B, IP_B);
      assert.equal(await b.run(tcpScript(Outside.neighbour, UDP_PORT)), 'welcome');
    });

    it('a network that the host joins is closed from then on, and one that it leaves is open again (RES-4)', async () => {
      await start();
      const a = await machineWith(A, IP_A);
      assert.equal(await a.run(tcpScript(Outside.address, UDP_PORT)), 'welcome');
      must('ip', ['address', 'add', '198.51.100.77/24', 'dev', 'sbxout']);
      try {
        await network.followHost();
        assert.equal(await a.run(tcpScript(Outside.address, UDP_PORT)), REFUSED);
        await network.assign(B, IP_B);
        assert.equal(await a.run(tcpScript(Outside.address, UDP_PORT)), REFUSED, 'another change keeps it closed');
        const { table } = networkNames(home);
        must('nft', ['-f', '-'], `delete table bridge ${table}\ndelete table inet ${table}\n`);
        await network.detach(B);
        assert.equal(await a.run(tcpScript(Outside.address, UDP_PORT)), REFUSED, 'so do rules that are written anew');
      } finally {
        must('ip', ['address', 'del', '198.51.100.77/24', 'dev', 'sbxout']);
      }
      await network.followHost();
      assert.equal(await a.run(tcpScript(Outside.address, UDP_PORT)), 'welcome');
    });

    it('a range that the configuration allows is reached, and none beside it (NET-3)', async () => {
      await start({ allow: ['10.9.9.9/32', '192.168.9.0/24'] });
      const a = await machineWith(A, IP_A);
      assert.equal(await a.run(tcpScript('10.9.9.9', UDP_PORT)), 'welcome');
      assert.equal(await a.run(tcpScript('192.168.9.9', UDP_PORT)), 'welcome');
      a.send(toGateway(IP_A, { to: '192.168.9.9', text: 'allowed' }));
      await outside.waitFor((line) => line.endsWith('allowed'));
      assert.equal(await a.run(tcpScript('172.16.9.9', UDP_PORT)), REFUSED);
    });

    it('no port of the host is reached, on any of its addresses (NET-3)', async () => {
      await start({ allow: ['0.0.0.0/0'] });
      const a = await machineWith(A, IP_A);
      const tcp = createServer((socket) => socket.end('host'));
      tcp.listen(0, '0.0.0.0');
      await once(tcp, 'listening');
      const { port } = tcp.address() as AddressInfo;
      const udp = createSocket('udp4');
      const told: string[] = [];
      udp.on('message', (message) => told.push(String(message)));
      udp.bind(port, '0.0.0.0');
      await once(udp, 'listening');
      udp.addMembership('224.0.0.251', GATEWAY);
      const uplink = Object.values(networkInterfaces())
        .flat()
        .find((found) => found?.family === 'IPv4' && !found.internal && !found.address.startsWith('10.123.'));
      for (const address of [GATEWAY, Outside.hostAddress, uplink?.address ?? GATEWAY]) {
        assert.equal(await a.run(tcpScript(address, port)), REFUSED, address);
        a.send(toGateway(IP_A, { to: address, port, text: 'denied' }));
      }
      const own = { from: IP_A, fromMac: macOfIp(IP_A), port };
      a.send(udpFrame({ ...own, to: '224.0.0.251', toMac: '01:00:5e:00:00:fb', text: 'denied-multicast' }));
      a.send(udpFrame({ ...own, to: '10.123.255.255', toMac: 'ff:ff:ff:ff:ff:ff', text: 'denied-broadcast' }));
      a.send(udpFrame({ ...own, to: GATEWAY, toMac: macOfIp(GATEWAY), port: 53, text: nameQuery('query-after') }));
      await outside.waitFor((line) => line === 'name query-after');
      assert.equal(await outside.run(tcpScript(Outside.hostAddress, port)), 'host');
      const control = once(udp, 'message');
      await outside.run(
        `const s = require('dgram').createSocket('udp4'); s.send('control', ${port}, '${Outside.hostAddress}', () => s.close())`,
      );
      await control;
      assert.deepEqual(told, ['control']);
      tcp.close();
      udp.close();
    });

    it('the host connects to a port of a machine, which reaches nothing of the host by that (NET-3)', async () => {
      await start();
      const a = await machineWith(A, IP_A);
      const own = createServer((socket) => socket.end('host')).listen(0, '0.0.0.0');
      await once(own, 'listening');
      const { port: ownPort } = own.address() as AddressInfo;
      const server = a.start(
        `require('net').createServer((s) => {
           const back = require('net').connect(${ownPort}, s.remoteAddress);
           back.on('data', () => s.end('reached the host'));
           back.on('error', (error) => s.end(error.code));
         }).listen(${UDP_PORT}, () => console.log('listening'));
         process.stdin.resume().on('end', () => process.exit())`,
      );
      await once(server.stdout, 'data');
      const socket = await network.connect(IP_A, UDP_PORT);
      assert(socket);
      assert.equal(String((await once(socket, 'data'))[0]), REFUSED);
      assert.equal(await network.connect(IP_A, 1), undefined, 'a closed port');
      socket.destroy();
      server.stdin.end();
      await once(server, 'close');
      own.close();
    });

    it('nobody outside opens a connection to a machine; the host may (NET-3)', async () => {
      await start();
      const a = await machineWith(A, IP_A);
      const server = a.start(
        `require('net').createServer((s) => s.end('machine')).listen(${UDP_PORT}, () => console.log('listening'));
         process.stdin.resume().on('end', () => process.exit())`,
      );
      await once(server.stdout, 'data');
      await outside.run(
        `const s = require('dgram').createSocket('udp4'); s.send('intruder', ${UDP_PORT}, '${IP_A}', () => s.close())`,
      );
      const socket = connect(UDP_PORT, IP_A);
      assert.equal(String((await once(socket, 'data'))[0]), 'machine');
      // Answers arrive on the path from outside, so the intruder's packet was dropped and did not just get lost.
      assert.equal(await a.run(udpScript(Outside.address, UDP_PORT)), 'answer');
      assert.equal(a.heard('intruder'), false);
      socket.destroy();
      server.stdin.end();
      await once(server, 'close');
    });
  });

  describe('when the rules stand', () => {
    it('nothing passes a tap before its machine is known, in either direction (NET-4)', async () => {
      await start();
      const a = await plug(A);
      const ear = await listen();
      a.send(honest(IP_A, 'too-early'));
      await a.sentAll();
      must('ip', ['neigh', 'replace', IP_A, 'lladdr', macOfIp(IP_A), 'dev', bridge]);
      const host = createSocket('udp4');
      await new Promise((sent) => host.send('host-too-early', UDP_PORT, IP_A, sent));
      await network.assign(A, IP_A);
      a.send(honest(IP_A, 'in-time'));
      await ear.waitForText('in-time');
      host.send('host-in-time', UDP_PORT, IP_A);
      await a.waitForText('host-in-time');
      host.close();
      assert.equal(ear.heard('too-early'), false);
      // No frame of any kind arrived, not even those that the host sends by itself.
      const inTime = Buffer.from('in-time').toString('hex');
      assert.deepEqual(
        a.said.slice(1).filter((line) => !line.includes(inTime)),
        [],
      );
    });

    it('the rules stay when the agent is killed, and the next one replaces them without a gap (NET-4)', async () => {
      const script = `
        const { BridgeNetwork } = await import('${import.meta.resolve('../src/network/bridge-network.ts')}');
        const { parseSubnet } = await import('${import.meta.resolve('../src/network/subnet.ts')}');
        const options = { assigned: new Map(), allow: [], rateMbit: undefined, connections: 4096, log: undefined };
        const network = await BridgeNetwork.create('${home}', parseSubnet('${SUBNET}'), () => ['127.0.0.1'], options);
        for (const [vmId, ip] of [['${A}', '${IP_A}'], ['${B}', '${IP_B}']]) {
          await network.attach(vmId, 0);
          await network.assign(vmId, ip);
        }
        process.kill(process.pid, 'SIGKILL');`;
      const agent = spawn(process.execPath, ['--input-type=module', '-e', script], { stdio: 'inherit' });
      assert.deepEqual(await once(agent, 'close'), [null, 'SIGKILL']);

      const a = await TapMachine.open(tapOf(A));
      const ear = await listen();
      speakers.push(a);
      a.configure(IP_A, 16, GATEWAY);
      assert.equal(await a.run(tcpScript(Outside.address, UDP_PORT)), 'welcome', 'machines go on without an agent');
      const lie = { from: IP_B, fromMac: macOfIp(IP_A), to: GATEWAY, toMac: macOfIp(GATEWAY), text: 'lie-in-the-gap' };
      a.send(udpFrame(lie));

      let isMade = false;
      const made = start({ assigned: new Map([[A, IP_A]]) }).finally(() => {
        isMade = true;
      });
      while (!isMade) {
        a.send(udpFrame(lie));
        await new Promise((turn) => setImmediate(turn));
      }
      await made;
      a.send(honest(IP_A, 'in-time'));
      await ear.waitForText('in-time');
      assert.equal(ear.heard('lie-in-the-gap'), false);
      assert.equal(await a.run(tcpScript(Outside.address, UDP_PORT)), 'welcome');
      const pins = must('nft', ['list', 'set', 'bridge', networkNames(home).table, 'pins']);
      assert.match(pins, new RegExp(tapOf(A)));
      assert.doesNotMatch(pins, new RegExp(tapOf(B)), 'what is not assigned any more lost its word');
      assert.deepEqual((await network.listVmIds()).sort(), [A, B], 'its tap is still to be seen');
    });

    it('rules that somebody flushed are whole again with the next change (NET-4)', async () => {
      await start();
      await network.assign(A, IP_A);
      const { table } = networkNames(home);
      must('nft', ['-f', '-'], `delete table bridge ${table}\ndelete table inet ${table}\n`);
      await network.assign(B, IP_B);
      assert.deepEqual((await network.listVmIds()).sort(), [A, B]);
      assert.match(must('nft', ['list', 'table', 'inet', table]), /masquerade/);
    });

    it('rules that somebody removed are whole again without a change of any machine (NET-4)', async () => {
      await start();
      await network.assign(A, IP_A);
      const { table } = networkNames(home);
      for (const lost of [`bridge ${table}`, `inet ${table}`, `inet ${table}_limits`]) {
        must('nft', ['delete', 'table', ...lost.split(' ')]);
        await network.followHost();
        assert.match(must('nft', ['list', 'tables']), new RegExp(`table ${lost}\\n`));
      }
      assert.deepEqual(await network.listVmIds(), [A]);
    });

    it('an nft that is held open adds in one transaction, and says when it cannot (NET-4)', async () => {
      await start();
      const { table } = networkNames(home);
      const session = new NftSession();
      const tapA = new Map([[tapOf(A), IP_A]]);
      const first = additions(table, tapA);
      await session.run(first.command, first.echoes);
      assert.deepEqual(await network.listVmIds(), [A]);
      await assert.rejects(session.run(first.command, first.echoes), /nft complains/);
      const many = additions(
        table,
        new Map(Array.from({ length: 8 }, (_, at) => [tapOf(`00000000010${at}`), `10.123.1.${at}`])),
      );
      await session.run(many.command, many.echoes);
      assert.equal((await network.listVmIds()).length, 9);
      session.close();
    });

    it('an nft that was ended between two transactions is replaced, not waited for (NET-4)', async () => {
      await start();
      const { table } = networkNames(home);
      const openNfts = () => spawnSync('pgrep', ['-P', String(process.pid), '-x', 'nft'], { encoding: 'utf8' }).stdout;
      const before = openNfts().split('\n');
      const session = new NftSession();
      const first = additions(table, new Map([[tapOf(A), IP_A]]));
      await session.run(first.command, first.echoes);
      const own = openNfts()
        .split('\n')
        .filter((pid) => !before.includes(pid));
      assert.equal(own.length, 1);
      process.kill(Number(own[0]), 'SIGKILL');
      await until('the nft is gone', () => !existsSync(`/proc/${own[0]}`));
      // Running another program gives the session time to notice that nft ended.
      assert.deepEqual(await network.listVmIds(), [A]);
      const second = additions(table, new Map([[tapOf(B), IP_B]]));
      await session.run(second.command, second.echoes);
      assert.deepEqual((await network.listVmIds()).sort(), [A, B]);
      session.close();
    });
  });

  describe('what is left', () => {
    it('a machine with the address of one that is gone gets nothing of its connections (NET-5)', async () => {
      await start();
      const old = await machineWith(A, IP_A);
      const client = old.start(
        `const s = require('net').connect(${UDP_PORT}, '${Outside.address}'); s.on('data', (d) => console.log(String(d)));`,
      );
      await once(client.stdout, 'data');
      const remembered = () => must('sh', ['-c', `conntrack -L --orig-src ${IP_A} 2>/dev/null || true`]);
      assert.match(remembered(), new RegExp(Outside.address));
      await network.detach(A);
      await old.end();
      client.kill('SIGKILL');
      assert.equal(remembered(), '');
      assert.equal(must('ip', ['neigh', 'show', 'to', IP_A, 'dev', bridge]), '');
      assert.doesNotMatch(must('bridge', ['fdb', 'show', 'br', bridge]), new RegExp(macOfIp(IP_A)));

      const next = await machineWith(B, IP_A);
      const ear = await listen('sbxout');
      outside.tell('late-answer');
      await ear.waitForText('late-answer');
      assert.equal(await next.run(tcpScript(Outside.address, UDP_PORT)), 'welcome');
      assert.equal(next.heard('late-answer'), false);
    });

    it('a detach that failed half-way forgets the connections when it is repeated (NET-5)', async () => {
      await start();
      const machine = await machineWith(A, IP_A);
      assert.equal(await machine.run(udpScript(Outside.address, UDP_PORT)), 'answer');
      const remembered = () => must('sh', ['-c', `conntrack -L --orig-src ${IP_A} 2>/dev/null || true`]);
      const { PATH } = process.env;
      writeFileSync(join(home, 'conntrack'), '#!/bin/sh\necho a broken tool >&2; exit 1', { mode: 0o755 });
      try {
        process.env.PATH = `${home}:${PATH}`;
        await assert.rejects(network.detach(A), /a broken tool/);
      } finally {
        process.env.PATH = PATH;
      }
      assert.notEqual(remembered(), '');
      await network.detach(A);
      assert.equal(remembered(), '');
    });

    it('connections that a killed agent did not clear away are gone when the next one starts (NET-5)', async () => {
      await start();
      const old = await machineWith(A, IP_A);
      const kept = await machineWith(B, IP_B);
      for (const machine of [old, kept])
        assert.equal(await machine.run(udpScript(Outside.address, UDP_PORT)), 'answer');
      const remembered = (ip: string) => must('sh', ['-c', `conntrack -L --orig-src ${ip} 2>/dev/null || true`]) !== '';
      assert.deepEqual([remembered(IP_A), remembered(IP_B)], [true, true]);
      const script = `
        const { BridgeNetwork } = await import('${import.meta.resolve('../src/network/bridge-network.ts')}');
        const { parseSubnet } = await import('${import.meta.resolve('../src/network/subnet.ts')}');
        const options = { assigned: new Map([['${B}', '${IP_B}']]), allow: [], rateMbit: undefined, connections: 4096, log: undefined };
        await BridgeNetwork.create('${home}', parseSubnet('${SUBNET}'), () => ['127.0.0.1'], options).catch((error) => {
          if (!/Port 53/.test(error.message)) throw error;
        });
        process.exit(0);`;
      must(process.execPath, ['--input-type=module', '-e', script]);
      assert.deepEqual([remembered(IP_A), remembered(IP_B)], [false, true]);
    });

    it('nothing is left of a VM that was detached, nor of the network that was removed (NET-5)', async () => {
      await start({ rateMbit: 100 });
      await machineWith(A, IP_A);
      await network.attach(B, 0);
      await network.detach(A);
      await network.detach(A);
      assert.deepEqual(await network.listVmIds(), [B]);
      assert.equal(existsSync(`/sys/class/net/${tapOf(A)}`), false);
      await network.remove();
      assert.deepEqual(await network.listVmIds(), []);
      assert.doesNotMatch(must('nft', ['list', 'tables']), new RegExp(networkNames(home).table));
      assert.equal(existsSync(`/sys/class/net/${bridge}`), false);
      assert.equal(existsSync(`/sys/class/net/${tapOf(B)}`), false);
    });
  });

  describe('many at once', () => {
    it('a machine sends and receives no faster than it may, whatever its neighbour does (NET-3)', async () => {
      await start({ rateMbit: 1 });
      const [a, b] = [await plug(A), await plug(B)];
      await network.assign(A, IP_A);
      await network.assign(B, IP_B);
      const [bytesPerSec, frames] = [125_000, 3000];
      // The kernel's bucket allows the bytes of one second plus the burst.
      const burst = bytesPerSec + BURST_BYTES;
      const ear = await listen();
      const began = performance.now();
      for (let count = 0; count < frames; count++) a.send(honest(IP_A, `many ${'x'.repeat(1300)}`));
      b.send(honest(IP_B, 'neighbour'));
      await ear.waitForText('neighbour');
      const speaks = setInterval(() => a.send(honest(IP_A, 'again')), 50);
      await ear.waitForText('again');
      clearInterval(speaks);
      const may = () => burst + (bytesPerSec * (performance.now() - began)) / 1000;
      const sent = Number(readFileSync(`/sys/class/net/${tapOf(A)}/statistics/rx_bytes`, 'utf8'));
      const passed = bytesOf(ear);
      assert.ok(sent > may(), 'more was sent than may pass');
      assert.ok(passed > burst / 2 && passed <= may(), `${passed} bytes passed of ${sent}`);

      must('ip', ['neigh', 'replace', IP_A, 'lladdr', macOfIp(IP_A), 'dev', bridge]);
      const host = createSocket('udp4');
      for (let count = 0; count < frames; count++) host.send('y'.repeat(1300), UDP_PORT, IP_A);
      const tells = setInterval(() => host.send('more', UDP_PORT, IP_A), 50);
      await a.waitForText('more');
      clearInterval(tells);
      host.close();
      const received = bytesOf(a);
      assert.ok(received > burst / 2 && received <= may(), `${received} bytes received`);
    });

    it('many VMs at once, on two networks of one host (NET-4)', async () => {
      await start();
      const otherHome = mkdtempSync(join(tmpdir(), 'sandbar-network-'));
      const other = await BridgeNetwork.create(otherHome, parseSubnet('10.124.0.0/16'), () => ['127.0.0.1'], OPEN);
      networks.push(other);
      const ids = (first: number) => Array.from({ length: 20 }, (_, at) => `0000000000${(first + at).toString(16)}`);
      const plugIn = (where: BridgeNetwork, vmIds: readonly string[]) =>
        vmIds.map(async (vmId, at) => {
          await where.attach(vmId, 70_000 + at);
          await where.assign(vmId, where.gateway.replace(/1$/, String(at + 100)));
        });
      await Promise.all([...plugIn(network, ids(16)), ...plugIn(other, ids(64))]);
      assert.deepEqual((await network.listVmIds()).sort(), ids(16));
      assert.deepEqual((await other.listVmIds()).sort(), ids(64));
      // The rules of one network do not affect machines of the other.
      const machine = await machineWith(A, IP_A);
      assert.equal(await machine.run(udpScript(Outside.address, UDP_PORT)), 'answer');
      await Promise.all([...ids(16).map((vmId) => network.detach(vmId)), ...ids(64).map((vmId) => other.detach(vmId))]);
      assert.deepEqual(await network.listVmIds(), [A]);
      assert.deepEqual(await other.listVmIds(), []);
      rmSync(otherHome, { recursive: true });
    });
  });
});
