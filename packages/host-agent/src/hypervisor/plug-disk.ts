// Plugs disks into the SCSI controller of a running VM and unplugs them. A slot is a SCSI id. The device and the block
// node of a slot have the same name, and the device's serial names the volume, so a restarted agent can find out which
// volume is in which slot. An earlier agent may have died after any step. Therefore every function asks QEMU which
// devices and nodes exist.
import type { QmpClient } from './qmp.ts';

/** QEMU's name for the bus of the controller `scsi0`, which qemu-args.ts defines. */
const BUS = 'scsi0.0';
/** The path in QEMU's object tree that lists all devices with an id. */
const DEVICES = '/machine/peripheral';
const SLOTS = [0, 1, 2, 3, 4, 5, 6, 7] as const;
/** QEMU removes a SCSI disk without waiting for the guest. This limit only ends removals that hang. */
const GONE_TIMEOUT_MS = 10_000;

const nameOf = (slot: number) => `volume${slot}`;

export type DiskToPlug = {
  /** SCSI id, 0 to 7. */
  slot: number;
  /** Identifies the volume to the guest and to a restarted agent; at most 36 characters. */
  serial: string;
  /** Path of a raw image file, as QEMU sees it. */
  path: string;
};

/**
 * Opens the file and makes it a disk of the guest. Calls `opened` as soon as QEMU no longer needs the file's name, also
 * after a failure. Throws when QEMU refuses; the disk may be half plugged in then, and {@link unplugDisk} removes it.
 */
export async function plugDisk(qmp: QmpClient, { slot, serial, path }: DiskToPlug, opened: () => void): Promise<void> {
  const name = nameOf(slot);
  try {
    await qmp.execute('blockdev-add', {
      driver: 'raw',
      'node-name': name,
      // Blocks that the guest trims become holes in the file.
      discard: 'unmap',
      // The usual write-back cache: an fsync in the guest sends a flush, which is an fdatasync on the host.
      cache: { direct: false, 'no-flush': false },
      // The kernel's file lock stops a second QEMU from opening the file, even when an agent asks for it by mistake.
      file: { driver: 'file', filename: path, locking: 'on', discard: 'unmap' },
    });
  } finally {
    opened();
  }
  await qmp.execute('device_add', {
    driver: 'scsi-hd',
    id: name,
    bus: BUS,
    'scsi-id': slot,
    lun: 0,
    drive: name,
    serial,
    // Without `device_id` QEMU uses the serial number there, and QEMU 8 and newer refuse more than 20 characters.
    device_id: name,
    // Same as for the root disk: a full disk on the host pauses the guest, and all other errors are reported to the
    // guest.
    werror: 'enospc',
    rerror: 'report',
  });
}

/**
 * Removes the disk from the guest and closes its file. Resolves when QEMU has done both. Does nothing when the slot is
 * empty. Throws when QEMU does not remove the device within 10 s.
 */
export async function unplugDisk(qmp: QmpClient, slot: number): Promise<void> {
  const name = nameOf(slot);
  if ((await devices(qmp)).includes(name)) await removeDevice(qmp, name);
  if ((await nodes(qmp)).includes(name)) await qmp.execute('blockdev-del', { 'node-name': name });
}

/**
 * Returns the serial numbers of the plugged disks, by slot. A slot that has only the device or only the block node gets
 * an empty serial; {@link unplugDisk} clears it.
 */
export async function pluggedDisks(qmp: QmpClient): Promise<Map<number, string>> {
  const [named, open] = await Promise.all([devices(qmp), nodes(qmp)]);
  const plugged = new Map<number, string>();
  for (const slot of SLOTS) {
    const name = nameOf(slot);
    const isWhole = named.includes(name) && open.includes(name);
    if (isWhole) plugged.set(slot, await serialOf(qmp, name));
    else if (named.includes(name) || open.includes(name)) plugged.set(slot, '');
  }
  return plugged;
}

async function removeDevice(qmp: QmpClient, name: string): Promise<void> {
  const gone = deviceGone(qmp, name);
  try {
    await qmp.execute('device_del', { id: name });
    await gone.happened;
  } finally {
    gone.forget();
  }
}

/**
 * Watches for the event that QEMU has deleted the device. `happened` rejects after 10 s, or when QEMU ends. `forget`
 * removes the listeners.
 */
function deviceGone(qmp: QmpClient, name: string): { happened: Promise<void>; forget: () => void } {
  let forget = () => {};
  const happened = new Promise<void>((resolve, reject) => {
    const onEvent = (event: string, data: Record<string, unknown>) =>
      event === 'DEVICE_DELETED' && data.device === name && resolve();
    const onClose = () => reject(new Error("QEMU's monitor closed"));
    const timer = setTimeout(() => reject(new Error(`QEMU does not remove the device ${name}`)), GONE_TIMEOUT_MS);
    qmp.on('event', onEvent);
    qmp.on('close', onClose);
    forget = () => {
      clearTimeout(timer);
      qmp.off('event', onEvent);
      qmp.off('close', onClose);
    };
  });
  happened.catch(() => {});
  return { happened, forget };
}

async function serialOf(qmp: QmpClient, name: string): Promise<string> {
  const serial = await qmp.execute('qom-get', { path: `${DEVICES}/${name}`, property: 'serial' });
  return typeof serial === 'string' ? serial : '';
}

async function devices(qmp: QmpClient): Promise<string[]> {
  return namesOf(await qmp.execute('qom-list', { path: DEVICES }), 'name');
}

async function nodes(qmp: QmpClient): Promise<string[]> {
  return namesOf(await qmp.execute('query-named-block-nodes', { flat: true }), 'node-name');
}

/** Returns the names in a list that QEMU sent. A compromised QEMU may send anything, so other entries are ignored. */
function namesOf(list: unknown, key: string): string[] {
  if (!Array.isArray(list)) return [];
  return list.map((item) => (Object(item) as Record<string, unknown>)[key]).filter((name) => typeof name === 'string');
}
