// Lets VMs open devices that the host restricts to root or a group (/dev/kvm; /dev/net/tun without udev). The agent
// creates its own device node with mode 0666 in a folder that only root may enter, and binds that node into the jail.
// So no VM has to be in the device's group, and no other account gains access. The folder is in /dev because other file
// systems may be mounted `nodev`.
import { mkdirSync, rmSync, statSync } from 'node:fs';
import { homeId } from '../network/names.ts';
import { runCommand } from '../run-command.ts';

/** The folder for the device nodes of a data directory. */
export function devicesFolder(home: string): string {
  return `/dev/sandbar-${homeId(home)}`;
}

export class DeviceNodes {
  readonly #folder: string;
  readonly #sources = new Map<string, Promise<string>>();

  /** The folder for the nodes; it is created with mode 0700 when needed. */
  constructor(folder: string) {
    this.#folder = folder;
  }

  /**
   * Returns the path to bind into the jail for `device`. Throws when the device does not exist or is no character
   * device.
   */
  sourceOf(device: string): Promise<string> {
    const known = this.#sources.get(device);
    if (known) return known;
    const source = this.#find(device);
    this.#sources.set(device, source);
    source.catch(() => this.#sources.delete(device));
    return source;
  }

  removeAll(): void {
    rmSync(this.#folder, { recursive: true, force: true });
    this.#sources.clear();
  }

  async #find(device: string): Promise<string> {
    const facts = statSync(device);
    if (!facts.isCharacterDevice()) throw new Error(`${device} is not a character device`);
    if ((facts.mode & 0o006) === 0o006) return device;
    mkdirSync(this.#folder, { recursive: true, mode: 0o700 });
    const node = `${this.#folder}/${device.replace(/^\/dev\//, '').replaceAll('/', '-')}`;
    if (statSync(node, { throwIfNoEntry: false })?.rdev === facts.rdev) return node;
    const { major, minor } = deviceNumbers(facts.rdev);
    await runCommand('mknod', ['-m', '0666', node, 'c', String(major), String(minor)]);
    return node;
  }
}

/** Splits a device number as the kernel encodes it (include/linux/kdev_t.h, new_encode_dev). */
export function deviceNumbers(rdev: number): { major: number; minor: number } {
  return { major: (rdev >> 8) & 0xfff, minor: (rdev & 0xff) | ((rdev >> 12) & 0xfff00) };
}
