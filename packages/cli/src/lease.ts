// Keeps the machine of `sandbar run` alive. The machine is created with an early expiry, and the CLI postpones this
// expiry as long as it runs. So when the CLI is killed, its machine soon expires.
import type { MachineCreate, MachineUpdate } from '@sandbar/contract/machine.ts';
import { MACHINE_BOUNDS } from '@sandbar/contract/machine-states.ts';
import type { Machines } from '@sandbar/sdk/machines.ts';

/**
 * How long the machine lives after the last renewal, seconds. A renewal is due after a third of this time, 40 s. The
 * CLI gives up when the service does not answer for 60 s, so the machine does not expire while the CLI still waits.
 */
const LEASE_SEC = 120;

type Expiry = Required<Pick<MachineUpdate, 'expires_in_sec' | 'on_expiry'>>;

/** The part of the API client that the lease uses. */
type Updates = Pick<Machines, 'update'>;

export class Lease {
  readonly #leaseSec: number;
  /** The expiry that the user wants. It counts from the construction of this object, just before the create. */
  readonly #wanted: Expiry;
  readonly #onLapse: 'destroy' | 'stop';
  readonly #began = performance.now();
  readonly #stopped = new AbortController();
  /** Whether the machine has the expiry that the user wants, so there is nothing to renew. */
  #isFinal = false;
  #timer: NodeJS.Timeout | undefined;
  /** The renewal that is under way. Never send two at once, because the service could carry out the older one last. */
  #renewing: Promise<void> | undefined;
  /** Whether a renewal became due while another one was under way. */
  #isDue = false;
  /** Whether renewals have ended for good. */
  #isEnded = false;

  constructor(
    { expires_in_sec = null, on_expiry = 'destroy', root_volume_id }: MachineCreate,
    leaseSec = leaseSecOf(),
  ) {
    this.#leaseSec = leaseSec;
    this.#wanted = { expires_in_sec, on_expiry };
    // The disk of --root-volume must outlive the machine, and a destroy would delete it.
    this.#onLapse = root_volume_id === undefined ? 'destroy' : 'stop';
  }

  /** Returns the expiry for the create: the lease, or what the user wants if that is earlier. */
  first(): Expiry {
    const { expiry, isFinal } = this.#next();
    // Assume that the create succeeds. If it fails, there is nothing to renew anyway.
    this.#isFinal = isFinal;
    return expiry;
  }

  /** Begins to postpone the expiry at intervals. A failed renewal is ignored, because the next one usually succeeds. */
  keep(machines: Updates, machineId: string): void {
    if (this.#isFinal) return;
    this.#timer = setInterval(() => this.#renew(machines, machineId), (this.#leaseSec * 1000) / 3);
    // The timer alone must not keep the CLI running.
    this.#timer.unref();
  }

  /** Ends the renewals. */
  stop(): void {
    this.#end();
    this.#stopped.abort();
  }

  /** Ends the renewals and sets the expiry that the user wants. Throws as the API client does. */
  async handOver(machines: Updates, machineId: string): Promise<void> {
    this.#end();
    // Wait for the renewal under way, because the service must not carry it out after the update below.
    await this.#renewing;
    if (this.#isFinal) return;
    await machines.update(machineId, { ...this.#wanted, expires_in_sec: this.#remainingSec() });
  }

  #end(): void {
    this.#isEnded = true;
    clearInterval(this.#timer);
  }

  /** Starts a renewal. If the previous one is still under way, the new one starts when that has ended. */
  #renew(machines: Updates, machineId: string): void {
    this.#isDue = this.#renewing !== undefined;
    if (this.#isDue) return;
    const { expiry, isFinal } = this.#next();
    const onSuccess = () => {
      this.#isFinal = isFinal;
      if (isFinal) this.#end();
    };
    const update = machines.update(machineId, expiry, { signal: this.#stopped.signal });
    this.#renewing = update
      .then(onSuccess, () => undefined)
      .then(() => {
        this.#renewing = undefined;
        if (this.#isDue && !this.#isEnded) this.#renew(machines, machineId);
      });
  }

  /** The expiry for the next request, and whether it is the expiry that the user wants. */
  #next(): { expiry: Expiry; isFinal: boolean } {
    const wantedSec = this.#remainingSec();
    const isFinal = wantedSec !== null && wantedSec <= this.#leaseSec;
    if (isFinal) return { expiry: { ...this.#wanted, expires_in_sec: wantedSec }, isFinal };
    return { expiry: { expires_in_sec: this.#leaseSec, on_expiry: this.#onLapse }, isFinal };
  }

  /** Seconds until the expiry that the user wants; null: never. */
  #remainingSec(): number | null {
    const { expires_in_sec } = this.#wanted;
    if (expires_in_sec === null) return null;
    return Math.max(MACHINE_BOUNDS.expirySecMin, Math.round(expires_in_sec - (performance.now() - this.#began) / 1000));
  }
}

/** `SANDBAR_RUN_LEASE_SEC` replaces the default. Values below 10 s are ignored, because the service refuses them. */
function leaseSecOf(): number {
  const given = Number(process.env.SANDBAR_RUN_LEASE_SEC);
  return Number.isInteger(given) && given >= MACHINE_BOUNDS.expirySecMin ? given : LEASE_SEC;
}
