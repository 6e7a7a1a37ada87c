// `sandbar ports`: lists the open ports of a machine, sets who may use a port, or prints an address that opens it.
import type { Command } from '@commander-js/extra-typings';
import type { Port } from '@sandbar/contract/port.ts';
import { parseId, parseInteger, parsePort, UsageError } from '../arguments.ts';
import { connect } from '../connect.ts';
import { addExamples } from '../examples.ts';
import { printJson, printLine, printRows } from '../print.ts';
import { BY_NAME, resolveId } from '../resolve-id.ts';

export function definePorts(command: Command): void {
  const defined = command
    .argument('<machine>', `the machine, ${BY_NAME}`, parseId)
    .argument('[port]', 'a port of the machine', parsePort)
    .option('--public', 'let everybody use the port')
    .option('--private', 'let only the account use the port, and who has a token')
    .option('--url', 'print an address that opens the port in a browser; who has it may use the port')
    .option('--expires-in <sec>', 'how long the address of --url works (3600)', parseInteger)
    .option('--json', 'print the answer of the API')
    .addHelpText(
      'after',
      `
Without a port, lists the ports on which programs listen. A port is private until you make it public.
sandbar forward MACHINE PORT listens on this computer and works for any protocol.`,
    )
    .action(async (machine, port, options) => {
      const { public: isPublic, private: isPrivate, url, expiresIn, json } = options;
      const wishes = [isPublic, isPrivate, url].filter(Boolean).length;
      if (port === undefined && wishes > 0) throw new UsageError('--public, --private and --url need a port');
      if (port !== undefined && wishes !== 1) throw new UsageError('give one of --public, --private and --url');
      const client = connect();
      const ports = client.ports(await resolveId(client, 'machine', machine));
      if (port === undefined) {
        const open = await ports.list();
        if (json) printJson({ ports: open });
        else printPorts(open);
        return;
      }
      if (url) {
        const token = await ports.token(port, { expiresInSec: expiresIn });
        if (json) printJson(token);
        else printLine(token.url);
        return;
      }
      const changed = await ports.setAccess(port, isPublic ? 'public' : 'private');
      if (json) printJson(changed);
      else printLine(`${changed.url} is ${changed.access}`);
    });
  addExamples(defined, 'sandbar ports web', 'sandbar ports web 8000 --public', 'sandbar ports web 8000 --url');
}

function printPorts(ports: readonly Port[]): void {
  const rows = ports.map(({ port, process, access, url }) => [`${port}`, process ?? '-', access, url]);
  printRows(['PORT', 'PROGRAM', 'ACCESS', 'URL'], rows, 'No open ports.');
}
