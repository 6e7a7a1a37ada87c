// Disks that come and go while a VM runs, on its SCSI controller. A slot is a SCSI id; the device and the block node of a
// slot have one name, and the device carries the id of what is in it, so that another agent finds out what is where. Each
// step may have been taken by an agent that died before the next: what counts is what QEMU has, not what it answers.
import type { QmpClient } from './qmp.ts';

/** What QEMU calls the controller's bus; the controller is `scsi0` (qemu-args.ts). */
const BUS = 'scsi0.0';
/** Where QEMU keeps the devices that have a name. */
const DEVICES = '/machine/peripheral';
const SLOTS = [0, 1, 2, 3, 4, 5, 6, 7] as const;
/** QEMU needs no word of the guest to let go of a SCSI disk; this only ends what hangs. */
const GONE_TIMEOUT_MS = 10_000;

const nameOf = (slot: number) => `volume${slot}`;

export type DiskToPlug = {
  /** SCSI id, 0 to 7. */
  slot: number;
  /** What the guest and another agent tell it by: at most 36 characters. */
  serial: string;
  /** A raw image; as QEMU sees it. */
  path: string;
};

/**
 * Opens the file and makes it a disk of the guest. Throws when QEMU does not: part of it may be done then, and
 * {@link unplugDisk} undoes it. `opened` is called as soon as QEMU no longer needs the file's name.
 */
export async function plugDisk(qmp: QmpClient, { slot, serial, path }: DiskToPlug, opened: () => void): Promise<void> {
  const name = nameOf(slot);
  try {
    await qmp.execute('blockdev-add', {
      driver: 'raw',
      'node-name': name,
      // What the guest trims becomes a hole in the file.
      discard: 'unmap',
      // The usual write-back cache: a flush of the guest, which its fsync ends with, is an fdatasync here.
      cache: { direct: false, 'no-flush': false },
      // The kernel's lock keeps a second QEMU out of the file, whatever an agent believes.
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
    // By itself it is the serial number, and QEMU since 8 refuses one of more than 20 characters there.
    device_id: name,
    // As for the root disk: a full disk of the host pauses the guest, and any other failed write is the guest's to know.
    werror: 'enospc',
    rerror: 'report',
  });
}

/** Takes the disk away and closes its file; resolves when QEMU has neither. Does nothing when the slot is empty. */
export async function unplugDisk(qmp: QmpClient, slot: number): Promise<void> {
  const name = nameOf(slot);
  if ((await devices(qmp)).includes(name)) await removeDevice(qmp, name);
  if ((await nodes(qmp)).includes(name)) await qmp.execute('blockdev-del', { 'node-name': name });
}

/** What is plugged in: serials by slot. Slots with half a disk, which {@link unplugDisk} empties, have an empty one. */
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

/** Resolves at the event that ends a device; rejects when it does not come, or QEMU ends. */
function deviceGone(qmp: QmpClient, name: string): { happened: Promise<void>; forget: () => void } {
  let forget = () => {};
  const happened = new Promise<void>((resolve, reject) => {
    const onEvent = (event: string, data: Record<string, unknown>) =>
      event === 'DEVICE_DELETED' && data.device === name && resolve();
    const onClose = () => reject(new Error("QEMU's monitor closed"));
    const timer = setTimeout(() => reject(new Error(`QEMU does not let go of ${name}`)), GONE_TIMEOUT_MS);
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

/** Names in a list that QEMU sent: anything, from one that a guest has taken over. */
function namesOf(list: unknown, key: string): string[] {
  if (!Array.isArray(list)) return [];
  return list.map((item) => (Object(item) as Record<string, unknown>)[key]).filter((name) => typeof name === 'string');
}
