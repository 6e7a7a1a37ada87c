// The state that all actions of one client share, how it asks the service, and how it handles an unexpected answer.
import { setTimeout as delay } from 'node:timers/promises';
import type { ActivityList } from '@sandbar/contract/activity.ts';
import type { Machine as MachineBody } from '@sandbar/contract/machine.ts';
import type { Casualties } from './casualties.ts';
import type { Journal } from './journal.ts';
import type { Ledger } from './ledger.ts';
import type { Machine, Volume } from './model.ts';
import type { Random } from './random.ts';
import { type Answer, type Request, type Service, sendPatiently } from './requests.ts';
import { payForRefused, type Wallet } from './wallet.ts';

export type ClientContext = {
  /** The client's name in the log. The names of its machines and files begin with it. */
  who: string;
  service: Service;
  /** The money of the client's account; undefined for an account that pays nothing. */
  wallet: Wallet | undefined;
  random: Random;
  journal: Journal;
  ledger: Ledger;
  casualties: Casualties;
  /** Aborted when the run ends early. */
  signal: AbortSignal;
  machines: Machine[];
  volumes: Volume[];
  /** Whether the service has several hosts. Then the client makes no volumes. */
  isFleet: boolean;
  /** Returns a number that no other call, of any client, returns. */
  nextNumber(): number;
};

/**
 * Thrown for an unexpected answer when the machine's VM was killed or the spend guard stopped the machine, which
 * explains the answer.
 */
export class MachineDied extends Error {
  readonly machine: Machine;
  constructor(machine: Machine, why: string) {
    super(`machine ${machine.id} was ended: ${why}`);
    this.machine = machine;
  }
}

/** Thrown for an answer that nothing explains. The journal already has it. */
export class Contradiction extends Error {}

export type Question = Request & {
  /** The statuses that mean that the operation succeeded. */
  accepts: readonly number[];
  /**
   * The machine that the request is about. If a kill or the spend guard ended it, an unexpected answer is no defect.
   */
  machine?: Machine;
  /** Finds the result after an unexpected answer, because an earlier attempt may have succeeded without an answer. */
  findResult?: (answer: Answer) => Promise<unknown>;
};

/** The result, and how many earlier attempts may have been carried out as well. */
export type Result<T> = { body: T; uncertain: number };

/**
 * Asks until there is a result. If the wallet is empty, tops it up and asks again. Throws `MachineDied` or
 * `Contradiction`.
 */
export async function ask<T>(context: ClientContext, question: Question): Promise<Result<T>> {
  const { accepts, machine, findResult, ...request } = question;
  const answer = await sendPaid(context, request);
  if (accepts.includes(answer.status)) return { body: answer.body as T, uncertain: answer.uncertain };
  if (answer.uncertain > 0 && findResult) {
    const found = await findResult(answer);
    if (found !== undefined) return { body: found as T, uncertain: answer.uncertain };
  }
  const told = `${request.method} ${request.path} ${JSON.stringify(request.body ?? {})} answered ${answer.status} ${JSON.stringify(answer.body)} after ${answer.uncertain} attempts`;
  if (machine && (await wasEnded(context, machine))) {
    context.journal.write(`${context.who} explained by a killed VM or the spend guard: ${told}`);
    throw new MachineDied(machine, told);
  }
  throw contradict(context, told);
}

/** Writes a difference to the journal. Returns an error, which the caller throws if it cannot go on. */
export function contradict({ journal, who }: ClientContext, sentence: string): Contradiction {
  journal.difference(`${who}: ${sentence}`);
  return new Contradiction(sentence);
}

/**
 * Sends a request until it is not refused for an empty wallet. Attempts without an answer are counted over all repeats.
 */
async function sendPaid(context: ClientContext, request: Request): Promise<Answer> {
  let uncertain = 0;
  for (;;) {
    const answer = await sendPatiently(context.service, request, context);
    uncertain += answer.uncertain;
    if (answer.status !== 402 || context.wallet === undefined) return { ...answer, uncertain };
    await payForRefused(context, context.wallet, `${request.method} ${request.path}`);
  }
}

/**
 * Whether someone else ended the machine since the client last recovered it: its VM was killed, or the spend guard
 * stopped it. A stop by the guard counts only when the activity feed has it.
 */
export async function wasEnded(context: ClientContext, machine: Machine): Promise<boolean> {
  const isStopped = await wasStoppedByGuard(context, machine);
  return isStopped || context.casualties.killsOf(machine.id) > machine.seen.kills;
}

/** Whether the spend guard stopped the machine since the client last recovered it, by the machine's feed. */
export async function wasStoppedByGuard(context: ClientContext, { id, seen }: Machine): Promise<boolean> {
  if (context.wallet === undefined) return false;
  await learnGuardStops(context, id);
  return context.casualties.guardStopsOf(id) > seen.guardStops;
}

const POLL_MS = 200;
const GIVE_UP_MS = 600_000;

/** Waits until no stop of the machine is under way, then counts in its feed how often the spend guard stopped it. */
async function learnGuardStops(context: ClientContext, id: string): Promise<void> {
  const get = async <T>(path: string) => (await ask<T>(context, { method: 'GET', path, accepts: [200] })).body;
  for (const until = performance.now() + GIVE_UP_MS; performance.now() < until; ) {
    const { operation } = await get<MachineBody>(`/v1/machines/${id}`);
    if (operation?.kind !== 'stop') break;
    await delay(POLL_MS, undefined, { signal: context.signal });
  }
  const { activity } = await get<ActivityList>(`/v1/machines/${id}/activity?category=machine&page_size=200`);
  const stops = activity.filter(({ actor, action }) => actor === 'system:spend_guard' && action === 'machine.stopped');
  context.casualties.learnGuardStops(id, stops.length);
}
