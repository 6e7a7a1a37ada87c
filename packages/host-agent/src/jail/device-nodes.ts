// Devices that only root or a group may open on the host (/dev/kvm; /dev/net/tun without udev) are given to a VM as a
// node of our own, open to everyone, in a folder that only root may enter. So no VM needs a group, and nobody else on the
// host gets a right. The folder is in /dev, because other file systems may be mounted without devices.
import { mkdirSync, rmSync, statSync } from 'node:fs';
import { runCommand } from '../run-command.ts';

export class DeviceNodes {
  readonly #folder: string;
  readonly #sources = new Map<string, Promise<string>>();

  /** `folder` is made, mode 0700. */
  constructor(folder: string) {
    this.#folder = folder;
  }

  /** What to bind in the place of `device`. Throws when it is not there. */
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

/** The kernel's packing of a device number (include/linux/kdev_t.h, new_encode_dev). */
function deviceNumbers(rdev: number): { major: number; minor: number } {
  return { major: (rdev >> 8) & 0xfff, minor: (rdev & 0xff) | ((rdev >> 12) & 0xfff00) };
}
