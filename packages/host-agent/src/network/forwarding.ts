// Lets the host forward packets of machines without making it a router for others. Answers from outside are forwarded only
// if the interface that they arrive on has forwarding on. We turn it on for each interface, never for the host
// (`ip_forward`), and remember which interfaces we changed. On those, the packet filter drops what is not for a machine
// (rules.ts), so for all others the host forwards what it forwarded before.
import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import { networkInterfaces } from 'node:os';
import { readRecord, writeRecord } from '../storage/record-file.ts';
import { isBridgeName } from './names.ts';
import { linkExists } from './ports.ts';

const SETTINGS = '/proc/sys/net/ipv4';
/** Other names would need quotes in the packet filter's rules. No usual program makes such names. */
const PLAIN_NAME = /^[\w.@-]+$/;

type ForwardingRecord = { bootId: string; interfaces: string[] };

export class Forwarding {
  readonly #bridge: string;
  readonly #path: string;
  readonly #bootId: string;

  /** `path`: the file that remembers the interfaces until the host reboots. */
  constructor(bridge: string, path: string) {
    this.#bridge = bridge;
    this.#path = path;
    this.#bootId = readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim();
  }

  /**
   * Returns the interfaces on which only we want forwarding, and remembers them. The packet filter must know them before
   * `open` is called. There are none while the whole host forwards. An interface that is down stays ours, because its
   * forwarding stays on.
   */
  claim(): string[] {
    const before = this.#claimed();
    const kept = before.filter(linkExists);
    const added = uplinks().filter((name) => !kept.includes(name) && !isForwarding(name));
    const claimed = isHostForwarding() ? [] : [...kept, ...added].sort();
    const record: ForwardingRecord = { bootId: this.#bootId, interfaces: claimed };
    if (claimed.join() !== before.join()) writeRecord(this.#path, record);
    return claimed;
  }

  /** Turns forwarding on for the bridge and for the claimed interfaces. */
  open(): void {
    for (const name of [this.#bridge, ...this.#claimed()]) setForwarding(name, true);
  }

  /** Turns forwarding off where only we wanted it. */
  restore(): void {
    if (!isHostForwarding()) for (const name of this.#claimed()) setForwarding(name, false);
    rmSync(this.#path, { force: true });
  }

  /** A reboot turns forwarding off. So neither an older record nor one that a power cut left empty means anything. */
  #claimed(): string[] {
    try {
      const record = readRecord<ForwardingRecord>(this.#path);
      return record?.bootId === this.#bootId ? record.interfaces : [];
    } catch (error) {
      if (error instanceof SyntaxError) return [];
      throw error;
    }
  }
}

/** Interfaces that packets of machines may leave through: all that have an IPv4 address, except loopback and our bridges. */
function uplinks(): string[] {
  const named = Object.entries(networkInterfaces()).flatMap(([label, addresses]) =>
    // An address may have a label such as `eth0:1`.
    addresses?.some(isOutside) ? (label.split(':')[0] ?? []) : [],
  );
  return [...new Set(named)].filter((name) => PLAIN_NAME.test(name) && !isBridgeName(name));
}

function isOutside(address: { family: string; internal: boolean }): boolean {
  return address.family === 'IPv4' && !address.internal;
}

function isHostForwarding(): boolean {
  return readFileSync(`${SETTINGS}/ip_forward`, 'utf8').trim() === '1';
}

function isForwarding(name: string): boolean {
  return readFileSync(`${SETTINGS}/conf/${name}/forwarding`, 'utf8').trim() === '1';
}

/** Does nothing when the interface is gone. */
function setForwarding(name: string, isOn: boolean): void {
  try {
    writeFileSync(`${SETTINGS}/conf/${name}/forwarding`, isOn ? '1' : '0');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
  }
}
