// Programs that talk to a test over taps and bridges: a "machine" that opens a tap as QEMU would and has its own
// network stack in a namespace, "outside" hosts behind a router, and a listener on the bridge. Frames contain readable
// text, so that tests can search for it.
import { type ChildProcessByStdio, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import type { Readable, Writable } from 'node:stream';
import { macOfIp } from '../../src/network/subnet.ts';
import { UDP_PORT } from './frames.ts';

/** What a machine prints when it has sent a frame. */
const SENT = 'sent';

const TAP_IOCTL = `ioctl($_[0], 0x400454ca, pack('Z16 S x22', $_[1], 0x1002)) or die "tap $_[1]: $!";`;

/**
 * A Perl program that opens a tap of the host, enters its own network namespace, and connects the tap to an interface
 * eth0 there. It prints the frames that it receives, and a line for each frame that it was told to send.
 */
const MACHINE = `
  use strict; sub tap { ${TAP_IOCTL} }
  my ($name, $fd) = @ARGV; my $host;
  if (!defined $fd) {
    $^F = 255; open($host, '+<', '/dev/net/tun') or die "tun: $!"; tap($host, $name);
    exec 'unshare', '--net', '--', 'perl', '-e', $ENV{MACHINE}, $name, fileno($host);
  }
  open($host, '+<&=', $fd) or die; open(my $guest, '+<', '/dev/net/tun') or die; tap($guest, 'eth0');
  $| = 1; print "ready\\n"; my $input = '';
  while (1) {
    my $set = ''; vec($set, fileno($_), 1) = 1 for ($host, $guest, *STDIN);
    select($set, undef, undef, undef);
    my $frame;
    if (vec($set, fileno($host), 1) && sysread($host, $frame, 65536)) { syswrite($guest, $frame); print unpack('H*', $frame), "\\n"; }
    if (vec($set, fileno($guest), 1) && sysread($guest, $frame, 65536)) { syswrite($host, $frame); }
    if (vec($set, fileno(*STDIN), 1)) {
      sysread(STDIN, $input, 65536, length $input) or exit;
      while ($input =~ s/^(.*)\\n//) { $frame = pack('H*', $1); syswrite($host, $frame) == length $frame or die "send: $!"; print "${SENT}\\n"; }
    }
  }`;

/** A Perl program that prints the frames that an interface of the host receives. */
const EAR = `
  use strict; socket(my $ear, 17, 3, unpack('S', pack('n', 3))) or die; setsockopt($ear, 1, 8, pack('l', 8 << 20));
  open(my $index, '<', "/sys/class/net/$ARGV[0]/ifindex") or die;
  bind($ear, pack('S n l S C C a8', 17, 3, <$index>, 0, 0, 0, '')) or die; $| = 1; print "ready\\n";
  while (my $from = recv($ear, my $frame, 65536, 0)) { print unpack('H*', $frame), "\\n" if unpack('x10 C', $from) != 4; }`;

/** The address that the outside name server returns for every name. */
export const NAMED_ADDRESS = '192.0.2.7';

/**
 * A Node program that answers over UDP and TCP on all its addresses, on the test port and, as a name server, on the DNS
 * port. It prints the messages and the names that it receives. A name that begins with `big` is answered over TCP only.
 */
const OUTSIDE = `
  const { createSocket } = require('node:dgram'); const { createServer } = require('node:net');
  let open = [];
  process.stdin.on('data', (text) => { for (const socket of open) socket.write(String(text)); });
  process.stdin.on('end', () => process.exit());
  let waiting = 4; const ready = () => { if (--waiting === 0) console.log('ready'); };
  const udp = createSocket('udp4', (message, from) => {
    console.log('udp ' + from.address + ' ' + message); udp.send('answer', from.port, from.address); });
  udp.bind(${UDP_PORT}, ready);
  createServer((socket) => { socket.on('error', () => {}); open.push(socket); socket.write('welcome');
    socket.on('data', (text) => console.log('tcp ' + socket.remoteAddress + ' ' + text));
  }).listen(${UDP_PORT}, '0.0.0.0', ready);
  const address = Buffer.from([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 1, 0, 4, ...'${NAMED_ADDRESS}'.split('.')]);
  const resolve = (query, isTcp) => {
    const labels = []; let at = 12;
    for (; query[at] > 0; at += 1 + query[at]) labels.push(String(query.subarray(at + 1, at + 1 + query[at])));
    const isCut = !isTcp && labels[0].startsWith('big');
    const answer = Buffer.concat([query.subarray(0, at + 5), isCut ? Buffer.alloc(0) : address]);
    answer.writeUInt16BE(isCut ? 0x8380 : 0x8180, 2); answer.writeUInt16BE(isCut ? 0 : 1, 6); answer.writeUInt16BE(0, 10);
    return { name: labels.join('.'), answer };
  };
  const names = createSocket('udp4', (query, from) => {
    const { name, answer } = resolve(query, false);
    console.log('name ' + name); names.send(answer, from.port, from.address); });
  names.bind(53, ready);
  createServer((socket) => { socket.on('error', () => {});
    socket.on('data', (query) => {
      const { name, answer } = resolve(query.subarray(2), true);
      console.log('name over tcp ' + name); socket.write(Buffer.concat([Buffer.from([0, answer.length]), answer])); });
  }).listen(53, '0.0.0.0', ready);`;

export type Script = ChildProcessByStdio<Writable, Readable, null>;

const CLOSED = '(closed)';

/** A child process that prints lines. The first line is `ready`. */
export class Speaker {
  readonly said: string[] = [];
  readonly pid: number;
  readonly #child: ChildProcessByStdio<Writable, Readable, null>;
  readonly #news = new Set<() => void>();
  #toldCount = 0;
  #sentCount = 0;

  constructor(program: string, args: readonly string[], env: NodeJS.ProcessEnv = process.env) {
    this.#child = spawn(program, args, { stdio: ['pipe', 'pipe', 'inherit'], env });
    this.pid = this.#child.pid ?? 0;
    this.#child.stdin.on('error', () => {});
    createInterface({ input: this.#child.stdout }).on('line', (line) => {
      if (line === SENT) this.#sentCount++;
      else this.said.push(line);
      for (const wake of this.#news) wake();
    });
    this.#child.on('close', () => {
      this.said.push(CLOSED);
      for (const wake of this.#news) wake();
    });
  }

  tell(text: string): void {
    this.#toldCount++;
    this.#child.stdin.write(text);
  }

  /** Resolves when a machine has sent all frames that it was told to send. Rejects when it ends first. */
  async sentAll(): Promise<void> {
    while (this.#sentCount < this.#toldCount) {
      if (this.said.at(-1) === CLOSED) throw new Error('ended before it had sent everything');
      await this.#change();
    }
  }

  /** Resolves when the process prints a line for which `isIt` returns true. Rejects when the process ends first. */
  async waitFor(isIt: (line: string) => boolean): Promise<void> {
    for (let at = 0; ; at++) {
      const line = this.said[at];
      if (line !== undefined && isIt(line)) return;
      if (line === CLOSED) throw new Error(`ended, having said: ${this.said.slice(-5).join(' | ')}`);
      if (line !== undefined) continue;
      at--;
      await this.#change();
    }
  }

  /** Resolves when the process prints a line or ends. */
  #change(): Promise<void> {
    return new Promise((resolve) => {
      const wake = () => {
        this.#news.delete(wake);
        resolve();
      };
      this.#news.add(wake);
    });
  }

  async end(): Promise<void> {
    if (this.#child.exitCode !== null || this.#child.signalCode !== null) return;
    const closed = once(this.#child, 'close');
    this.#child.kill('SIGKILL');
    await closed;
  }
}

/** A process that prints received frames. `heard` tells whether one of them contains a text. */
class FrameSpeaker extends Speaker {
  heard(text: string): boolean {
    const hex = Buffer.from(text).toString('hex');
    return this.said.some((line) => line.includes(hex));
  }

  waitForText(text: string): Promise<void> {
    const hex = Buffer.from(text).toString('hex');
    return this.waitFor((line) => line.includes(hex));
  }
}

export class Ear extends FrameSpeaker {
  static async on(device: string): Promise<Ear> {
    const ear = new Ear('perl', ['-e', EAR, device]);
    await ear.waitFor((line) => line === 'ready');
    return ear;
  }
}

export class TapMachine extends FrameSpeaker {
  /** Opens a tap. The machine has no address until `configure`, but it can already `send`. */
  static async open(tapName: string): Promise<TapMachine> {
    const machine = new TapMachine('perl', ['-e', MACHINE, tapName], { ...process.env, MACHINE });
    await machine.waitFor((line) => line === 'ready');
    return machine;
  }

  configure(ip: string, prefix: number, gateway: string): void {
    const lines = [
      `link set eth0 address ${macOfIp(ip)} up`,
      'link set lo up',
      `address add ${ip}/${prefix} dev eth0`,
      `route add default via ${gateway}`,
    ];
    must('nsenter', [...inNetOf(this.pid), 'ip', '-batch', '-'], lines.join('\n'));
  }

  send(frame: Buffer): void {
    this.tell(`${frame.toString('hex')}\n`);
  }

  /** Runs a Node script in the machine's network namespace and returns its output. */
  run(script: string): Promise<string> {
    return outputOf(this.start(script));
  }

  start(script: string): Script {
    return startIn(this.pid, script);
  }
}

/**
 * Hosts outside the host under test, all played by one process. One of them is a router on the same network as the
 * public address of the host under test. It leads to the others.
 */
export class Outside extends Speaker {
  static readonly hostAddress = '203.0.113.1';
  /** The router, in the host's own network. */
  static readonly neighbour = '203.0.113.10';
  /** A host on the internet. */
  static readonly address = '198.51.100.10';

  /**
   * Starts outside hosts behind an interface. `addresses` are additional addresses that the host under test reaches
   * through the router.
   */
  static async behind(device: string, addresses: readonly string[]): Promise<Outside> {
    const outside = new Outside('unshare', ['--net', '--', process.execPath, '-e', OUTSIDE]);
    await outside.waitFor((line) => line === 'ready');
    const lines = [
      `link add ${device} type veth peer name eth0 netns ${outside.pid}`,
      `address add ${Outside.hostAddress}/24 dev ${device}`,
      `link set ${device} up`,
      ...[Outside.address, ...addresses].map((address) => `route add ${address}/32 via ${Outside.neighbour}`),
    ];
    must('ip', ['-batch', '-'], lines.join('\n'));
    const inside = [
      'link set lo up',
      'link set eth0 up',
      ...[Outside.neighbour, Outside.address, ...addresses].map((address) => `address add ${address}/32 dev eth0`),
      // Set the source address, so that answers over UDP come from the host on the internet and not from the router.
      `route add ${Outside.hostAddress}/32 dev eth0 src ${Outside.address}`,
      `route add default via ${Outside.hostAddress}`,
    ];
    must('nsenter', [...inNetOf(outside.pid), 'ip', '-batch', '-'], inside.join('\n'));
    return outside;
  }

  run(script: string): Promise<string> {
    return outputOf(startIn(this.pid, script));
  }
}

function startIn(pid: number, script: string): Script {
  return spawn('nsenter', [...inNetOf(pid), process.execPath, '-e', script], { stdio: ['pipe', 'pipe', 'inherit'] });
}

async function outputOf(script: Script): Promise<string> {
  let text = '';
  script.stdout.on('data', (chunk) => {
    text += chunk;
  });
  await once(script, 'close');
  return text.trim();
}

/** Returns a script that sends `text` over TCP and prints the answer, or the error's code. */
export function tcpScript(host: string, port: number, text = 'hello'): string {
  return `const s = require('node:net').connect(${port}, '${host}');
    s.write('${text}'); s.on('data', (d) => { console.log(String(d)); s.end(); s.destroy(); });
    s.on('error', (e) => console.log(e.code));`;
}

/** Returns a script that sends `text` over UDP and prints the answer, or the error's code. */
export function udpScript(host: string, port: number, text = 'hello'): string {
  return `const s = require('node:dgram').createSocket('udp4');
    s.on('message', (m) => { console.log(String(m)); s.close(); });
    s.on('error', (e) => { console.log(e.code); s.close(); });
    s.connect(${port}, '${host}', () => s.send('${text}'));`;
}

/** Returns a script that asks a name server for the address of a name and prints it, or the error's code. */
export function nameScript(server: string, name: string): string {
  return `const resolver = new (require('node:dns').Resolver)(); resolver.setServers(['${server}']);
    resolver.resolve4('${name}', (error, addresses) => console.log(error ? error.code : addresses.join()));`;
}

/** Tries to open a tap as another user. Returns the error, or an empty string on success. */
export function openTapAs(uid: number, tapName: string, tunFd: number): string {
  const script = `sub tap { ${TAP_IOCTL} } tap(*STDIN, $ARGV[0]);`;
  const identity = [
    '--reuid',
    String(uid),
    '--regid',
    String(uid),
    '--clear-groups',
    '--bounding-set=-all',
    '--inh-caps=-all',
  ];
  const result = spawnSync('setpriv', [...identity, 'perl', '-e', script, tapName], {
    stdio: [tunFd, 'pipe', 'pipe'],
    encoding: 'utf8',
  });
  return result.stderr.trim();
}

function inNetOf(pid: number): string[] {
  return [`--net=/proc/${pid}/ns/net`];
}

/** Runs a program to its end and returns its output. Throws when it fails. */
export function must(program: string, args: readonly string[], input = ''): string {
  const { status, stdout, stderr } = spawnSync(program, args, { input, encoding: 'utf8' });
  if (status !== 0) throw new Error(`${program} ${args.join(' ')}: ${stderr}`);
  return stdout;
}
