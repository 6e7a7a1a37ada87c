// Implements `Guest` by calls to the gateway, which holds the session with the guest agent.
import type {
  Guest,
  GuestClaim,
  GuestIdentity,
  GuestJob,
  GuestLease,
  JobFrame,
  JobSpec,
  StreamOffsets,
  VolumeMount,
  WarmUpProgram,
} from '../guest/guest.ts';
import type { GuestStream } from '../guest/guest-stream.ts';
import { parseBoolean, parseJobs, parseNothing } from './answers.ts';
import type { CallMethod, StreamMethod } from './calls.ts';

/** One session on the channel to the gateway. */
export type SessionLine = {
  readonly closed: Promise<void>;
  /** Rejects with the error that the guest answered, or with `Error` when the session or the gateway has ended. */
  call<T>(method: CallMethod, args: readonly unknown[], parse: (result: unknown) => T): Promise<T>;
  /** Like `call`, but resolves when the output stream of the job `jobId` begins. */
  stream(method: StreamMethod, args: readonly unknown[], jobId: string): Promise<AsyncIterable<JobFrame>>;
  /** The two functions of `Guest` for guest calls and guest streams. */
  callGuest: Guest['call'];
  openStream: Guest['openStream'];
  close(): void;
};

export class RemoteGuest implements Guest {
  readonly #line: SessionLine;

  constructor(line: SessionLine) {
    this.#line = line;
  }

  get closed(): Promise<void> {
    return this.#line.closed;
  }

  checkBare(): Promise<void> {
    return this.#ask('checkBare');
  }

  warmUp(program: WarmUpProgram): Promise<void> {
    return this.#ask('warmUp', program);
  }

  warmUpJob(program: WarmUpProgram): Promise<void> {
    return this.#ask('warmUpJob', program);
  }

  lease(lease: GuestLease): Promise<boolean> {
    return this.#line.call('lease', [lease], parseBoolean);
  }

  claim(claim: GuestClaim): Promise<void> {
    return this.#ask('claim', claim);
  }

  setIdentity(identity: GuestIdentity): Promise<void> {
    return this.#ask('setIdentity', identity);
  }

  startJob(jobId: string, spec: JobSpec, outputLimitBytes: number): Promise<AsyncIterable<JobFrame>> {
    return this.#line.stream('startJob', [jobId, spec, outputLimitBytes], jobId);
  }

  followJob(jobId: string, offsets: StreamOffsets): Promise<AsyncIterable<JobFrame>> {
    return this.#line.stream('followJob', [jobId, offsets], jobId);
  }

  acknowledgeOutput(jobId: string, offsets: StreamOffsets): Promise<void> {
    return this.#ask('acknowledgeOutput', jobId, offsets);
  }

  cancelJob(jobId: string): Promise<void> {
    return this.#ask('cancelJob', jobId);
  }

  listJobs(): Promise<GuestJob[]> {
    return this.#line.call('listJobs', [], parseJobs);
  }

  forgetJob(jobId: string): Promise<void> {
    return this.#ask('forgetJob', jobId);
  }

  mountVolume(mount: VolumeMount): Promise<void> {
    return this.#ask('mountVolume', mount);
  }

  unmountVolume(volumeId: string): Promise<void> {
    return this.#ask('unmountVolume', volumeId);
  }

  freeze(timeoutMs: number): Promise<void> {
    return this.#ask('freeze', timeoutMs);
  }

  thaw(): Promise<void> {
    return this.#ask('thaw');
  }

  holdProcesses(timeoutMs: number): Promise<void> {
    return this.#ask('holdProcesses', timeoutMs);
  }

  releaseProcesses(): Promise<void> {
    return this.#ask('releaseProcesses');
  }

  powerOff(): Promise<void> {
    return this.#ask('powerOff');
  }

  call(name: string, params: string, timeoutMs: number): Promise<string> {
    return this.#line.callGuest(name, params, timeoutMs);
  }

  openStream(name: string, params: string): Promise<GuestStream> {
    return this.#line.openStream(name, params);
  }

  close(): void {
    this.#line.close();
  }

  #ask(method: CallMethod, ...args: readonly unknown[]): Promise<void> {
    return this.#line.call(method, args, parseNothing);
  }
}
