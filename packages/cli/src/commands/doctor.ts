// `sandbar doctor`: finds differences between the hosts, the database and the quota counters, and repairs them.
import type { Command } from '@commander-js/extra-typings';
import type { Audit, AuditFinding, AuditFix } from '@sandbar/contract/admin.ts';
import { SandbarError } from '@sandbar/sdk/service-errors.ts';
import { callAdmin } from '../admin-socket.ts';
import { AdminSocketError } from '../admin-socket-error.ts';
import { addExamples } from '../examples.ts';
import { printJson, printLine, printNotice } from '../print.ts';

/** An audit asks each host up to four times, and each answer takes up to a minute. */
const TIMEOUT_MS = 300_000;

// Exit codes; 0 means that everything was checked and is well.
const NOT_WELL = 1;
const COULD_NOT_LOOK = 2;

export function defineDoctor(command: Command): void {
  const defined = command
    .option('--fix', "repair what is certainly the service's own; never removes a disk that an account has")
    .option('--json', 'print the answer as JSON')
    .addHelpText(
      'after',
      `
For the owner of the data directory ($SANDBAR_HOME), on the computer where npm start runs. Checks every process, network
interface, rule, file, machine, volume, snapshot, quota, reservation, job, claim and ledger entry, and prints a line for
each that is not as it should be. Also lists operations and publications to the object store that fail again and again. What
is under way is not reported.
Exit code: 0 all is well, 1 something is not, 2 it could not look.`,
    )
    .action(async ({ fix, json }) => {
      process.exitCode = await runDoctor(fix === true, json === true);
    });
  addExamples(defined, 'sandbar doctor', 'sandbar doctor --fix');
}

async function runDoctor(isToFix: boolean, isJson: boolean): Promise<number> {
  const answer = await ask(isToFix).catch((error: unknown) => {
    if (!(error instanceof AdminSocketError || error instanceof SandbarError)) throw error;
    printNotice(error.message);
    return undefined;
  });
  if (answer === undefined) return COULD_NOT_LOOK;
  if (isJson) printJson(answer);
  else printAudit(answer);
  if (answer.findings.length > 0) return NOT_WELL;
  return answer.not_looked_at.length > 0 ? COULD_NOT_LOOK : 0;
}

const ask = (isToFix: boolean): Promise<Audit & Partial<AuditFix>> =>
  isToFix ? callAdmin('/admin/audit/fix', {}, TIMEOUT_MS) : callAdmin('/admin/audit', undefined, TIMEOUT_MS);

function printAudit({ findings, fixed, not_looked_at, looked_at }: Audit & Partial<AuditFix>): void {
  for (const finding of fixed ?? []) printLine(`mended  ${describe(finding)} Done: ${finding.did}.`);
  for (const finding of findings) {
    const hint = finding.fix === null ? 'Nothing can be done safely.' : `--fix: ${finding.fix}.`;
    printLine(`wrong   ${describe(finding)} ${hint}`);
  }
  for (const { host_id, why } of not_looked_at) printLine(`unseen  host ${host_id}: ${why}`);
  const { hosts, machines, volumes, snapshots, accounts } = looked_at;
  const seen = [
    count(hosts, 'host'),
    count(machines, 'machine'),
    count(volumes, 'volume'),
    count(snapshots, 'snapshot'),
    count(accounts, 'account'),
  ].join(', ');
  const verdict = findings.length > 0 ? count(findings.length, 'finding') : 'all is well with what was looked at';
  printLine(`Looked at ${seen}: ${verdict}.`);
}

const describe = ({ area, subject, detail }: AuditFinding): string => `${area} ${subject}: ${detail}`;

const count = (number: number, what: string): string => `${number} ${what}${number === 1 ? '' : 's'}`;
