// Tests the process of the name relay: what it may do, and that names resolve again after it was killed. Needs root.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { createSocket, type Socket } from 'node:dgram';
import { once } from 'node:events';
import { existsSync, mkdtempSync, readdirSync, readFileSync, readlinkSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { reservedUids } from '../src/jail/uid-pool.ts';
import { NameRelay } from '../src/network/dns/name-relay.ts';
import { homeId } from '../src/network/names.ts';
import { until } from './support/fake-host.ts';
import { programPid } from './support/gateway.ts';
import { writableMounts } from './support/mounts.ts';
import { addressAnswer, askOverTcp, NameServer, nameQuery } from './support/name-server.ts';
import { enterOwnNetwork } from './support/own-network.ts';

const RELAY = '127.77.0.1';
const [SERVER, OTHER_SERVER] = ['127.77.0.2', '127.77.0.3'];
const MACHINE = '127.77.1.1';
const KILLS = 5;

describe('process of the name relay', { skip: process.getuid?.() !== 0 }, () => {
  const home = mkdtempSync(join(tmpdir(), 'sandbar-relay-'));
  const ends: object[] = [];
  const log = { error: (details: object) => void ends.push(details) };
  let servers = [SERVER];
  let server: NameServer;
  let otherServer: NameServer;
  let relay: NameRelay;
  let machine: Socket;
  let pid = 0;
  before(async () => {
    enterOwnNetwork();
    [server, otherServer] = await Promise.all([
      NameServer.on(SERVER, ({ message }) => [addressAnswer(message)]),
      NameServer.on(OTHER_SERVER, ({ message }) => [addressAnswer(message)]),
    ]);
    relay = await startRelay();
    pid = programPid(relay.pid);
    machine = createSocket('udp4').bind(0, MACHINE);
    await once(machine, 'listening');
  });
  after(async () => {
    machine.close();
    await relay.close();
    await Promise.all([server.close(), otherServer.close()]);
    assert.deepEqual(groups(), [], 'no control group is left');
    rmSync(home, { recursive: true, force: true });
  });

  async function startRelay(): Promise<NameRelay> {
    const started = await NameRelay.start({ home, address: RELAY, nameServers: () => servers, log: log as never });
    await started.ready();
    return started;
  }

  const file = (name: string) => readFileSync(`/proc/${pid}/${name}`, 'utf8');

  /** The control groups of this data directory's relay. */
  const groups = () => {
    const name = `sandbar-${homeId(join(home, 'run/names'))}`;
    const hierarchies = readdirSync('/sys/fs/cgroup').map((folder) => `/sys/fs/cgroup/${folder}/${name}`);
    return [`/sys/fs/cgroup/${name}`, ...hierarchies].filter((path) => existsSync(path));
  };

  /** Asks as a resolver does: when there is no answer after a while, it asks again. */
  async function resolve(name: string): Promise<void> {
    for (let tries = 0; tries < 50; tries++) {
      machine.send(nameQuery(name), 53, RELAY);
      const answered = once(machine, 'message', { signal: AbortSignal.timeout(200) });
      if (await answered.catch(() => undefined)) return;
    }
    assert.fail(`${name} is not resolved`);
  }

  it('no thread has the uid of root or of a VM, a capability, a group, or a way to get one (RES-3)', () => {
    const { nameRelay, vms, gateway } = reservedUids(home);
    assert.ok(nameRelay > vms.last && nameRelay !== gateway);
    for (const thread of readdirSync(`/proc/${pid}/task`)) {
      const fields = Object.fromEntries(
        [...file(`task/${thread}/status`).matchAll(/^(\w+):[ \t]*(.*)$/gm)].map(([, name, value]) => [name, value]),
      );
      for (const name of ['Uid', 'Gid']) assert.equal(fields[name], Array(4).fill(nameRelay).join('\t'));
      for (const name of ['CapInh', 'CapPrm', 'CapEff', 'CapBnd', 'CapAmb'])
        assert.equal(Number(`0x${fields[name]}`), 0);
      assert.deepEqual([fields.Groups?.trim(), fields.NoNewPrivs], ['', '1']);
    }
  });

  it('it sees no file of the data directory and of /etc, no program but Node, can write nothing, and has limits (RES-3)', () => {
    const root = `/proc/${pid}/root`;
    for (const path of [home, '/etc/passwd', '/etc/resolv.conf', '/bin/sh', '/home', '/root', '/dev'])
      assert.equal(existsSync(`${root}${path}`), false, path);
    assert.deepEqual(writableMounts(file('mountinfo')), ['/proc']);
    assert.equal(file('environ'), '');
    assert.match(file('cgroup'), /^\d+:(memory)?:\/sandbar-[0-9a-f]{8}\/names$/m);
  });

  it('it holds no sockets of the agent but the two for names and its channel (RES-3)', () => {
    const inherited = readdirSync(`/proc/${pid}/fd`)
      .map((fd) => readlinkSync(`/proc/${pid}/fd/${fd}`))
      .filter((target) => target.startsWith('socket:'));
    // The fourth socket is the relay's standard error.
    assert.equal(inherited.length, 4);
  });

  it('names resolve over UDP and TCP again when it is killed again and again, and nothing is left of it (RES-3)', async () => {
    await resolve('first.test');
    const descriptors = () => readdirSync('/proc/self/fd').length;
    let before = 0;
    for (let kill = 0; kill < KILLS; kill++) {
      const [ended, killed] = [ends.length, programPid(relay.pid)];
      process.kill(killed, 'SIGKILL');
      // A query that is sent while no relay runs waits for the next relay.
      const overTcp = askOverTcp(RELAY, MACHINE, [nameQuery(`tcp-${kill}.test`)]);
      await until('its end is noticed', () => ends.length > ended);
      await resolve(`udp-${kill}.test`);
      await overTcp;
      assert.equal((await askOverTcp(RELAY, MACHINE, [nameQuery(`tcp-${kill}.test`)])).length, 1);
      assert.ok(server.names.includes(`udp-${kill}.test`) && server.names.includes(`tcp-${kill}.test`));
      assert.notEqual(programPid(relay.pid), killed);
      // Count only after the first round, because that round opens descriptors that the test itself keeps open.
      before ||= descriptors();
    }
    await until('all descriptors of ended relays are closed', () => descriptors() <= before);
    const left = groups().flatMap((group) => readFileSync(`${group}/names/cgroup.procs`, 'utf8').trim().split('\n'));
    assert.deepEqual(new Set(left.map(Number)).size, 2, 'the relay and its parent in the jail are alone');
  });

  it('it asks the name servers that the host has now (RES-3)', async () => {
    servers = [OTHER_SERVER];
    while (!otherServer.names.includes('other.test')) await resolve('other.test');
    process.kill(programPid(relay.pid), 'SIGKILL');
    const asked = server.asked.length;
    await resolve('next.test');
    assert.ok(otherServer.names.includes('next.test'), 'the next relay knows them too');
    assert.equal(server.asked.length, asked);
    servers = [SERVER];
  });

  it('it ends with an agent that is killed, and the next agent starts one on the same port (RES-3)', async () => {
    await relay.close();
    const script = `
      const { NameRelay } = await import('${import.meta.resolve('../src/network/dns/name-relay.ts')}');
      const options = { home: '${home}', address: '${RELAY}', nameServers: () => ['${SERVER}'], log: console };
      const relay = await NameRelay.start(options);
      await relay.ready();
      console.log(relay.pid);
      setInterval(() => {}, 1000);`;
    const agent = spawn(process.execPath, ['--input-type=module', '-e', script], {
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    const [said] = await once(agent.stdout, 'data');
    const orphan = programPid(Number(String(said)));
    await resolve('before.test');
    agent.kill('SIGKILL');
    await once(agent, 'close');
    relay = await startRelay();
    assert.equal(existsSync(`/proc/${orphan}/exe`), false, 'the relay of the killed agent is gone');
    await resolve('after.test');
  });

  it('a port that is in use is refused with what to do, and nothing is left (RES-3)', async () => {
    const elsewhere = mkdtempSync(join(tmpdir(), 'sandbar-relay-'));
    const options = { home: elsewhere, address: RELAY, nameServers: () => servers, log: log as never };
    await assert.rejects(NameRelay.start(options), /Port 53 of 127\.77\.0\.1.* is in use: set SANDBAR_SUBNET/);
    rmSync(elsewhere, { recursive: true });
  });
});
