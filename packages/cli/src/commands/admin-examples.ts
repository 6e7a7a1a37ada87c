// The examples in the help of the operator's commands, in one table, because there are many small commands.
import type { CommandUnknownOpts } from '@commander-js/extra-typings';
import { addExamples } from '../examples.ts';

/** Examples by command; each follows `sandbar admin` and the name of the command. */
const EXAMPLES: Readonly<Record<string, readonly string[]>> = {
  account: ['create --email ada@example.com', 'show ada@example.com'],
  'account create': ['--email ada@example.com', '--email ada@example.com --tier payg --billing prepaid --credit 25'],
  'account list': ['', '--json'],
  'account show': ['ada@example.com'],
  'account tier': ['ada@example.com enterprise'],
  'account suspend': ['ada@example.com'],
  'account resume': ['ada@example.com'],
  'account delete': ['ada@example.com', 'ada@example.com --yes'],
  'account credit': ['ada@example.com --eur 25 --as top-up --reference INV-2026-0042'],
  'account billing': ['ada@example.com prepaid'],
  'account operator': ['ada@example.com', 'ada@example.com --remove'],
  'account limits': ['ada@example.com --machines 10', 'ada@example.com --machines default'],
  'account password': ['ada@example.com'],
  'account key': ['ada@example.com --scope read --name ci'],
  prices: ['', '--json'],
  'prices set': ['--vcpu-hour 0.05'],
  invoice: ['ada@example.com 2026-10'],
  host: ['list'],
  'host list': ['', '--json'],
  'host cordon': ['019b2d6c-5f0a-7c3e-9a41-0d3f5b8e7a20'],
  'host uncordon': ['019b2d6c-5f0a-7c3e-9a41-0d3f5b8e7a20'],
  'host drain': ['019b2d6c-5f0a-7c3e-9a41-0d3f5b8e7a20'],
  'host remove': ['019b2d6c-5f0a-7c3e-9a41-0d3f5b8e7a20', '019b2d6c-5f0a-7c3e-9a41-0d3f5b8e7a20 --force'],
  'host token': ['', '--expires 10m'],
  'host tokens': ['', '--json'],
  'host revoke-token': ['019b2d6c-5f0a-7c3e-9a41-0d3f5b8e7a20'],
  backup: ['/var/backups/sandbar', '/var/backups/sandbar-database --database'],
  restore: ['/var/backups/sandbar', '/var/backups/sandbar-database --database'],
  fleet: ['rotate-authority'],
  'fleet rotate-authority': [''],
};

/** Adds the examples to the subcommands of `sandbar admin`. */
export function addAdminExamples(admin: CommandUnknownOpts): void {
  for (const [path, examples] of Object.entries(EXAMPLES)) {
    const command = path
      .split(' ')
      .reduce<CommandUnknownOpts | undefined>(
        (group, name) => group?.commands.find((one) => one.name() === name),
        admin,
      );
    if (command === undefined) throw new Error(`there is no command sandbar admin ${path}`);
    addExamples(command, ...examples.map((example) => `sandbar admin ${path} ${example}`.trim()));
  }
}
