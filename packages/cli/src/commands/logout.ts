// `sandbar logout`: removes the key that `sandbar login` kept.
import type { Command } from '@commander-js/extra-typings';
import { addExamples } from '../examples.ts';
import { loginPath, removeLogin } from '../login-file.ts';
import { printLine } from '../print.ts';

export function defineLogout(command: Command): void {
  command
    .addHelpText(
      'after',
      `
Removes ~/.config/sandbar/credentials.json. The key itself stays valid until you revoke it in the dashboard, under
API keys.`,
    )
    .action(async () => {
      const wasThere = await removeLogin();
      printLine(
        wasThere
          ? `Removed ${loginPath()}. The key stays valid until you revoke it in the dashboard, under API keys.`
          : `There is no login: ${loginPath()} does not exist.`,
      );
    });
  addExamples(command, 'sandbar logout');
}
