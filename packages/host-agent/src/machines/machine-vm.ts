// Holds the VM that a machine has now, and the session with the guest agent in it. A machine without a VM has neither.
import type { Duplex } from 'node:stream';
import { setTimeout as delay } from 'node:timers/promises';
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { Guest } from '../guest/guest.ts';
import type { Vm } from '../hypervisor/driver.ts';
import { GuestLink } from './guest-link.ts';
import type { RecordBook } from './record-book.ts';

/** How long a guest may take to sync and power off before its VM is killed. */
const GRACEFUL_STOP_MS = 10_000;

type Log = { warn(details: object, message: string): void };

export class MachineVm {
  readonly #machineId: string;
  readonly #book: RecordBook;
  readonly #log: Log;
  readonly #onSessionError: () => void;
  #vm: Vm | undefined;
  #link: GuestLink | undefined;
  /** Connections to the VM that end with it. */
  readonly #connections = new Set<Duplex>();

  /** `onSessionError` is called when a session could not be opened again. */
  constructor(machineId: string, book: RecordBook, log: Log, onSessionError: () => void) {
    this.#machineId = machineId;
    this.#book = book;
    this.#log = log;
    this.#onSessionError = onSessionError;
  }

  get current(): Vm | undefined {
    return this.#vm;
  }

  /**
   * Stores `vm` as the machine's current VM and opens the link to its guest agent. The guest must already have
   * acknowledged its identity. `onSession` runs at the start of each later session; `first` is a session that is
   * already open.
   */
  hold(vm: Vm, onSession: (guest: Guest) => Promise<void>, first: Guest | undefined): void {
    this.#vm = vm;
    const onError = (err: unknown) => {
      this.#onSessionError();
      this.#log.warn({ machine_id: this.#machineId, err }, 'no session with the guest agent');
    };
    this.#link = new GuestLink(vm, onSession, onError, first);
  }

  /** Holds a VM that nobody may talk to, because it will be ended. */
  holdSilently(vm: Vm | undefined): void {
    this.#vm = vm;
  }

  /** Destroys a connection to the current VM when the VM ends. Its network would only let the connection hang. */
  endWith(connection: Duplex): void {
    this.#connections.add(connection);
    connection.once('close', () => this.#connections.delete(connection));
  }

  /** Closes the session and returns the VM, which the caller then ends. */
  letGo(): Vm | undefined {
    const vm = this.#vm;
    this.#vm = undefined;
    this.closeSession();
    this.#link = undefined;
    for (const connection of this.#connections) connection.destroy();
    return vm;
  }

  /** Returns the link to the guest. Throws `conflict` when the machine does not run. */
  link(): GuestLink {
    if (!this.#link) throw this.notRunning();
    return this.#link;
  }

  /** Returns whether `link` is still the link to the machine's current guest. */
  isCurrent(link: GuestLink): boolean {
    return this.#link === link;
  }

  notRunning(): ServiceError {
    return new ServiceError('conflict', `the machine is ${this.#book.record.status}, not running`);
  }

  /**
   * Returns the session. Throws `conflict` when the machine does not run, and the errors of {@link GuestLink.guest}.
   */
  readonly findGuest = async (): Promise<Guest> => this.link().guest();

  /** Returns the session, or undefined when the machine does not run. Throws the errors of {@link GuestLink.guest}. */
  async guestIfAny(): Promise<Guest | undefined> {
    return this.#link?.guest();
  }

  /** Ends the present session, so that a new one is opened. */
  renewSession(): void {
    this.#link?.renew();
  }

  /** Ends the session for good. The VM goes on. */
  closeSession(): void {
    this.#link?.close();
  }

  /**
   * Thaws a guest that is still frozen because the previous agent died during a snapshot. Otherwise the guest would
   * stay frozen until its own time limit.
   */
  letGuestGoOn(): void {
    this.findGuest()
      .then((guest) => Promise.allSettled([guest.thaw(), guest.releaseProcesses()]))
      .catch(() => {});
  }

  /** Asks the guest to power off, and waits until the VM has ended, 10 s are over, or `giveUp` aborts. */
  async powerOff(giveUp: AbortSignal): Promise<void> {
    const vm = this.#vm;
    if (!vm) return;
    const timer = new AbortController();
    const patience = AbortSignal.any([timer.signal, giveUp]);
    const asked = this.#link?.guest().then((guest) => guest.powerOff());
    asked?.catch((err) =>
      this.#log.warn({ machine_id: this.#machineId, err }, 'the guest could not be asked to power off'),
    );
    await Promise.race([vm.exited, delay(GRACEFUL_STOP_MS, undefined, { signal: patience }).catch(() => {})]);
    timer.abort();
  }
}
