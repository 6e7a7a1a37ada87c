// What the acts of one client share: how it asks the service, and what it does with an answer that it did not expect.
import type { Casualties } from './casualties.ts';
import type { Journal } from './journal.ts';
import type { Ledger } from './ledger.ts';
import type { Machine, Volume } from './model.ts';
import type { Random } from './random.ts';
import { type Answer, type Request, type Service, sendPatiently } from './requests.ts';

export type ClientContext = {
  /** Its name in the log and in the names of its machines and files. */
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
  /** A number that no other call of any client has got. */
  nextNumber(): number;
};

/** The VM of the machine was killed, which explains the answer. */
export class MachineDied extends Error {
  readonly machine: Machine;
  constructor(machine: Machine, why: string) {
    super(`machine ${machine.id} was killed: ${why}`);
    this.machine = machine;
  }
}

/** The service gave an answer that nothing explains. It is in the journal already. */
export class Contradiction extends Error {}

export type Question = Request & {
  /** The statuses that are the result of the operation. */
  accepts: readonly number[];
  /** A killed VM of this machine explains other answers. */
  machine?: Machine;
  /** Finds the result after another answer, when an earlier attempt may have been carried out. */
  findResult?: (answer: Answer) => Promise<unknown>;
};

/** What was asked for, and how many earlier attempts may have been carried out as well. */
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

/** Writes a difference to the journal. The caller throws what this returns, when it cannot go on. */
export function contradict({ journal, who }: ClientContext, sentence: string): Contradiction {
  journal.difference(`${who}: ${sentence}`);
  return new Contradiction(sentence);
}

/** Whether the VM of the machine was killed since the client last dealt with that. */
export const isCasualty = ({ casualties }: ClientContext, { id, killsSeen }: Machine): boolean =>
  casualties.killsOf(id) > killsSeen;
