// `sandbar status`: says whether the service on this computer runs and is well.
import type { Command } from '@commander-js/extra-typings';
import type { ServiceStatus } from '@sandbar/service/background/status.ts';
import { addExamples } from '../examples.ts';
import { formatBytes, printJson, printLine, printNotice } from '../print.ts';
import { withService } from '../service-code.ts';

export function defineStatus(command: Command): void {
  command
    .option('--json', 'print the status as JSON')
    .addHelpText(
      'after',
      `
Runs on the computer of the service. SANDBAR_HOME names the data directory. The machines are those of the account in its
credentials.json.
Exit code: 0 when the service is ready and answers, 1 when not.`,
    )
    .action(async ({ json }) => {
      await withService(
        async () => ({
          ...(await import('@sandbar/service/config.ts')),
          ...(await import('@sandbar/service/background/status.ts')),
        }),
        async ({ readConfig, readStatus }) => {
          const status = await readStatus(readConfig(process.env, process.getuid?.() ?? -1).home);
          if (json) printJson(status);
          else printStatus(status);
          process.exitCode = status.healthy ? 0 : 1;
        },
      );
    });
  addExamples(command, 'sandbar status --json');
}

function printStatus({ state, healthy, problems, ...status }: ServiceStatus): void {
  const { home, address, dashboard, version, processes, machines, disk_bytes } = status;
  const running = processes.filter((one) => one.running).map(({ name, pid }) => `${name} ${pid}`);
  const rows: [string, string | null][] = [
    ['state', state === 'running' && !healthy ? 'running, but not well' : state],
    ['version', version],
    ['address', address],
    ['dashboard', dashboard],
    ['processes', running.length > 0 ? running.join(', ') : null],
    ['machines', machines && describeMachines(machines)],
    ['data', disk_bytes === null ? `${home} (there is none)` : `${home} (${formatBytes(disk_bytes)})`],
  ];
  for (const [name, value] of rows) if (value !== null) printLine(`${name.padEnd(11)}${value}`);
  for (const problem of problems) printNotice(problem);
  if (state === 'stopped') printNotice('the service does not run; sandbar up starts it');
}

function describeMachines({ running, stopped, other }: NonNullable<ServiceStatus['machines']>): string {
  return `${running} running, ${stopped} stopped${other > 0 ? `, ${other} other` : ''}`;
}
