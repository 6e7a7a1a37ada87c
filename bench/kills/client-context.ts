// The state that all actions of one client share, how it asks the service, and how it handles an unexpected answer.
import type { Casualties } from './casualties.ts';
import type { Journal } from './journal.ts';
import type { Ledger } from './ledger.ts';
import type { Machine, Volume } from './model.ts';
import type { Random } from './random.ts';
import { type Answer, type Request, type Service, sendPatiently } from './requests.ts';

export type ClientContext = {
  /** The client's name in the log. The names of its machines and files begin with it. */
  who: string;
  service: Service;
  random: Random;
  journal: Journal;
  ledger: Ledger;
  casualties: Casualties;
  /** Aborted when the run ends early. */
  signal: AbortSignal;
  machines: Machine[];
  volumes: Volume[];
  /** Returns a number that no other call, of any client, returns. */
  nextNumber(): number;
};

/** Thrown for an unexpected answer when the machine's VM was killed, which explains the answer. */
export class MachineDied extends Error {
  readonly machine: Machine;
  constructor(machine: Machine, why: string) {
    super(`machine ${machine.id} was killed: ${why}`);
    this.machine = machine;
  }
}

/** Thrown for an answer that no kill explains. The journal already has it. */
export class Contradiction extends Error {}

export type Question = Request & {
  /** The statuses that mean that the operation succeeded. */
  accepts: readonly number[];
  /** The machine that the request is about. If its VM was killed, an unexpected answer is no defect. */
  machine?: Machine;
  /** Finds the result after an unexpected answer, because an earlier attempt may have succeeded without an answer. */
  findResult?: (answer: Answer) => Promise<unknown>;
};

/** The result, and how many earlier attempts may have been carried out as well. */
export type Result<T> = { body: T; uncertain: number };

/** Asks until there is a result. Throws `MachineDied` or `Contradiction`. */
export async function ask<T>(context: ClientContext, question: Question): Promise<Result<T>> {
  const { accepts, machine, findResult, ...request } = question;
  const answer = await sendPatiently(context.service, request, context);
  if (accepts.includes(answer.status)) return { body: answer.body as T, uncertain: answer.uncertain };
  if (answer.uncertain > 0 && findResult) {
    const found = await findResult(answer);
    if (found !== undefined) return { body: found as T, uncertain: answer.uncertain };
  }
  const told = `${request.method} ${request.path} ${JSON.stringify(request.body ?? {})} answered ${answer.status} ${JSON.stringify(answer.body)} after ${answer.uncertain} attempts`;
  if (machine && isCasualty(context, machine)) {
    context.journal.write(`${context.who} explained by a killed VM: ${told}`);
    throw new MachineDied(machine, told);
  }
  throw contradict(context, told);
}

/** Writes a difference to the journal. Returns an error, which the caller throws if it cannot go on. */
export function contradict({ journal, who }: ClientContext, sentence: string): Contradiction {
  journal.difference(`${who}: ${sentence}`);
  return new Contradiction(sentence);
}

/** Whether the machine's VM was killed since the client last recovered it. */
export const isCasualty = ({ casualties }: ClientContext, { id, killsSeen }: Machine): boolean =>
  casualties.killsOf(id) > killsSeen;
