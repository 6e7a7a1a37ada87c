// `sandbar quotas`: what the account uses and may use.
import { type Command, connect, printJson, readArguments } from '../command.ts';
import { formatTable } from '../table.ts';

async function runQuotas(args: readonly string[]): Promise<number> {
  const { values } = readArguments(args, { json: { type: 'boolean', default: false } });
  const found = await connect().account.quotas();
  if (values.json) {
    printJson(found);
    return 0;
  }
  const rows = found.quotas.map(({ name, used, limit, description }) => [name, `${used}`, `${limit}`, description]);
  console.log(`tier ${found.tier}\n${formatTable(['QUOTA', 'USED', 'LIMIT', 'COUNTS'], rows)}`);
  return 0;
}

export const quotas: Command = {
  name: 'quotas',
  summary: 'shows what the account uses and may use',
  help: 'Usage: sandbar quotas [--json]',
  run: runQuotas,
};
