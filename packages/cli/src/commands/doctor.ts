// `sandbar doctor`: compares what the hosts have, what the database says and what is counted, and mends it when asked to.
import type { Audit, AuditFinding, AuditFix } from '@sandbar/contract/admin.ts';
import { ApiError } from '@sandbar/sdk/errors.ts';
import { callAdmin } from '../admin-socket.ts';
import { AdminSocketError } from '../admin-socket-error.ts';
import { type Command, printJson, readArguments } from '../command.ts';
import { UsageError } from '../usage-error.ts';

const HELP = `Usage: sandbar doctor [--fix] [--json]

For the owner of the data directory ($SANDBAR_HOME), on the machine where npm start runs. Looks at every process, network
interface, rule, file, machine, volume, snapshot, quota, reservation, job, claim and ledger entry, and prints a line for each that
is not as it should be. What is under way is none. --fix mends what is certainly the service's own, and never removes a
disk that an account has. Exit code: 0 all is well, 1 something is not, 2 it could not look.`;

/** An audit looks at each host up to four times, at a minute at most. */
const TIMEOUT_MS = 300_000;

async function runDoctor(args: readonly string[]): Promise<number> {
  const { values, positionals } = readArguments(args, {
    fix: { type: 'boolean', default: false },
    json: { type: 'boolean', default: false },
  });
  if (positionals.length > 0) throw new UsageError('sandbar doctor takes no arguments but --fix and --json');
  const answer = await ask(values.fix).catch((error: unknown) => {
    if (!(error instanceof AdminSocketError || error instanceof ApiError)) throw error;
    console.error(`sandbar: ${error.message}`);
    return undefined;
  });
  if (answer === undefined) return 2;
  if (values.json) printJson(answer);
  else printAudit(answer);
  if (answer.findings.length > 0) return 1;
  return answer.not_looked_at.length > 0 ? 2 : 0;
}

const ask = (isToFix: boolean): Promise<Audit & Partial<AuditFix>> =>
  isToFix ? callAdmin('/admin/audit/fix', {}, TIMEOUT_MS) : callAdmin('/admin/audit', undefined, TIMEOUT_MS);

function printAudit({ findings, fixed, not_looked_at, looked_at }: Audit & Partial<AuditFix>): void {
  for (const finding of fixed ?? []) console.log(`mended  ${describe(finding)} Done: ${finding.did}.`);
  for (const finding of findings) {
    const hint = finding.fix === null ? 'Nothing can be done safely.' : `--fix: ${finding.fix}.`;
    console.log(`wrong   ${describe(finding)} ${hint}`);
  }
  for (const { host_id, why } of not_looked_at) console.log(`unseen  host ${host_id}: ${why}`);
  const { hosts, machines, volumes, snapshots, accounts } = looked_at;
  const seen = [
    count(hosts, 'host'),
    count(machines, 'machine'),
    count(volumes, 'volume'),
    count(snapshots, 'snapshot'),
    count(accounts, 'account'),
  ].join(', ');
  const verdict = findings.length > 0 ? count(findings.length, 'finding') : 'all is well with what was looked at';
  console.log(`Looked at ${seen}: ${verdict}.`);
}

const describe = ({ area, subject, detail }: AuditFinding): string => `${area} ${subject}: ${detail}`;

const count = (number: number, what: string): string => `${number} ${what}${number === 1 ? '' : 's'}`;

export const doctor: Command = {
  name: 'doctor',
  summary: 'looks whether all is well, for the operator: sandbar doctor --fix',
  help: HELP,
  run: runDoctor,
};
