// Keeps a part of the data directory's file system free of guests, so that the database, the records and the logs can
// always be written. Disks of guests are sparse and grow by what guests write, so the growth itself cannot be refused.
// Two mechanisms protect the reserve:
//
//   |<------- free for guests ------->|<------------- reserve ------------->|
//   |                                 |<-- measured -->|<---- ballast ----->|
//
// - The free space is measured often. When it is down to the reserve, the disk is "short": guests are paused, job
//   output stays in the guests, and requests that need room are refused. Guests resume when an eighth more than the
//   reserve is free again.
// - Between two measurements a guest can still allocate much space, for example by writing zeros to a volume without
//   data. So a part of the reserve is occupied by the ballast, a file that is allocated and never used. When the rest
//   of the disk is full, QEMU gets ENOSPC and pauses its guest. While the guests are paused, the ballast shrinks as the
//   service needs room, and it grows back later.
import { EventEmitter, once } from 'node:events';
import { statfsSync, statSync, truncateSync } from 'node:fs';
import { setTimeout as delay } from 'node:timers/promises';
import { runCommand } from '../run-command.ts';
import { diskFull } from './overlay.ts';

const MIB = 1024 ** 2;
const GIB = 1024 ** 3;
/** The default reserve: a twentieth of the file system, and at least 2 GiB. */
const RESERVE_SHARE = 20;
const RESERVE_MIN_BYTES = 2 * GIB;
/** Largest size of the ballast, which has to stop guests only until the next measurement. */
const BALLAST_MAX_BYTES = 2 * GIB;
/**
 * Assumed write rate of the fastest disk. The next measurement comes before guests can fill the free space at this
 * rate.
 */
const FASTEST_BYTES_PER_MS = 2 * MIB;
const INTERVAL_MS = { shortest: 50, longest: 1000 };

export type DiskReserveOptions = {
  /** The data directory. */
  dir: string;
  /** Bytes of the reserve. Undefined: the default. */
  reserveBytes: number | undefined;
  ballastPath: string;
  log: { warn(details: object, message: string): void; info(details: object, message: string): void };
};

/** Bytes. `freeBytes` includes the ballast, so guests may still write `freeBytes - reserveBytes`. */
export type DiskFacts = { totalBytes: number; freeBytes: number; reserveBytes: number };

/** The methods for those parts of the agent that make files grow. */
export type DiskRoom = Pick<DiskReserve, 'isShort' | 'refuseWhenShort' | 'whenThereIsRoom'>;

export class DiskReserve {
  /** `change`: the disk became short or has room again. */
  readonly events = new EventEmitter<{ change: [] }>().setMaxListeners(0);
  readonly #options: DiskReserveOptions;
  readonly #ending = new AbortController();
  #isShort = false;
  #canHaveBallast = true;
  #watching: Promise<void> | undefined;

  constructor(options: DiskReserveOptions) {
    this.#options = options;
  }

  /** Measures the file system. */
  facts(): DiskFacts {
    const { dir, reserveBytes } = this.#options;
    const { blocks, bavail, bsize } = statfsSync(dir);
    const totalBytes = blocks * bsize;
    return {
      totalBytes,
      freeBytes: bavail * bsize + this.#ballastBytes(),
      reserveBytes: reserveBytes ?? Math.max(RESERVE_MIN_BYTES, Math.floor(totalBytes / RESERVE_SHARE)),
    };
  }

  /** Whether the free space is down to the reserve, as of the last measurement. */
  get isShort(): boolean {
    return this.#isShort;
  }

  /**
   * Measures, and throws `fleet_capacity` when the disk is short, or would be after `neededBytes` more are written.
   * Call it before a request makes files grow.
   */
  refuseWhenShort(neededBytes = 0): void {
    const { freeBytes, reserveBytes } = this.#measure();
    if (this.#isShort || freeBytes - neededBytes < reserveBytes)
      throw diskFull(new Error(`${freeBytes} bytes are free, and ${reserveBytes} of them are reserved`));
  }

  /** Resolves at once if the disk is not short, otherwise when it has room again. Rejects when `signal` aborts. */
  async whenThereIsRoom(signal?: AbortSignal): Promise<void> {
    while (this.#isShort) await once(this.events, 'change', { signal });
  }

  /** Measures from now on, as often as needed, and keeps the ballast. */
  watch(): void {
    this.#watching ??= this.#keepWatching();
  }

  /** Stops measuring. The ballast stays, because the guests go on. */
  async close(): Promise<void> {
    this.#ending.abort();
    await this.#watching;
  }

  async #keepWatching(): Promise<void> {
    const { signal } = this.#ending;
    while (!signal.aborted) {
      const facts = this.#measure();
      await this.#keepBallast(facts).catch((err) =>
        this.#options.log.warn({ err }, 'the ballast is not as it should be'),
      );
      const left = facts.freeBytes - facts.reserveBytes;
      const pauseMs = Math.min(INTERVAL_MS.longest, Math.max(INTERVAL_MS.shortest, left / FASTEST_BYTES_PER_MS));
      await delay(pauseMs, undefined, { signal, ref: false }).catch(() => {});
    }
  }

  /**
   * Measures, and updates whether the disk is short. A short disk stays short until an eighth more than the reserve is
   * free.
   */
  #measure(): DiskFacts {
    const facts = this.facts();
    const { freeBytes, reserveBytes } = facts;
    const wasShort = this.#isShort;
    this.#isShort = freeBytes < reserveBytes + (wasShort ? reserveBytes / 8 : 0);
    if (this.#isShort === wasShort) return facts;
    const { log } = this.#options;
    if (this.#isShort) log.warn({ ...facts }, 'the disk is down to its reserve: the guests are held');
    else log.info({ ...facts }, 'the disk has room again: the guests go on');
    this.events.emit('change');
    return facts;
  }

  /**
   * Shrinks the ballast by an eighth of the reserve when the disk is short and less than that eighth is left beside the
   * ballast. Grows the ballast again when the disk is not short.
   */
  async #keepBallast({ freeBytes, reserveBytes }: DiskFacts): Promise<void> {
    const { ballastPath, log } = this.#options;
    const bytes = this.#ballastBytes();
    const step = Math.floor(reserveBytes / 8);
    const wanted = Math.min(BALLAST_MAX_BYTES, step * 6);
    if (this.#isShort && bytes > 0 && freeBytes - bytes < step) truncateSync(ballastPath, Math.max(0, bytes - step));
    if (bytes > wanted) truncateSync(ballastPath, wanted);
    if (this.#isShort || bytes >= wanted || !this.#canHaveBallast) return;
    await runCommand('fallocate', ['--length', String(wanted), ballastPath]).catch((err) => {
      this.#canHaveBallast = false;
      log.warn({ err }, 'the file system has no ballast: the reserve depends on its free space being measured');
    });
  }

  /** Bytes that the ballast takes on the disk. */
  #ballastBytes(): number {
    const stats = statSync(this.#options.ballastPath, { throwIfNoEntry: false });
    return stats === undefined ? 0 : stats.blocks * 512;
  }
}
