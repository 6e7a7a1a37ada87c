// Lets the host forward packets of machines without making it a router for others. Replies from outside are forwarded
// only if forwarding is turned on for the interface on which they arrive. We turn forwarding on for single interfaces,
// never for the whole host (`ip_forward`), and remember which interfaces we changed. On those interfaces the packet
// filter drops packets that are not for a machine (rules.ts), so the host forwards for others only what it forwarded
// before.
import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import { networkInterfaces } from 'node:os';
import { readRecord, writeRecord } from '../storage/record-file.ts';
import { isBridgeName } from './names.ts';
import { linkExists } from './ports.ts';

const SETTINGS = '/proc/sys/net/ipv4';
/**
 * Interfaces with other names are ignored, because such names would need quotes in the packet filter's rules. No common
 * program makes such names.
 */
const PLAIN_NAME = /^[\w.@-]+$/;

/** The file in which a data directory remembers the interfaces. */
export function forwardingRecord(home: string): string {
  return `${home}/forwarding.json`;
}

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
   * Returns the interfaces on which forwarding is needed only for machines, and remembers them. The packet filter must
   * know them before `open` is called. Returns none while forwarding is on for the whole host. Keeps an interface that
   * is down, because its forwarding stays on.
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

  /** Turns forwarding off on the interfaces where it is on only because of us. */
  restore(): void {
    if (!isHostForwarding()) for (const name of this.#claimed()) setForwarding(name, false);
    rmSync(this.#path, { force: true });
  }

  /**
   * Returns the remembered interfaces. A reboot turns forwarding off, so a record from before the reboot is ignored,
   * and so is a record that a power cut left empty.
   */
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

/**
 * Returns the interfaces through which packets of machines may leave the host: all that have an IPv4 address, except
 * loopback and our bridges.
 */
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
