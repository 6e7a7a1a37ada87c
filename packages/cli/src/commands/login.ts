// `sandbar login`: gets an API key that a person approves in the dashboard, and keeps it for all later commands.
import { hostname } from 'node:os';
import { setTimeout as delay } from 'node:timers/promises';
import { type Command, InvalidArgumentError, Option } from '@commander-js/extra-typings';
import { ConfigurationError } from '@sandbar/sdk/errors.ts';
import { resolveSettings } from '@sandbar/sdk/settings.ts';
import { parseId, UsageError } from '../arguments.ts';
import { type DeviceKey, pollForKey, requestCode } from '../device-login.ts';
import { addExamples } from '../examples.ts';
import { Interrupted, onInterruption } from '../interruption.ts';
import { loginPath, writeLogin } from '../login-file.ts';
import { openBrowser } from '../open-browser.ts';
import { printLine, printNotice, toPrintable } from '../print.ts';

const SCOPES = ['read', 'full'] as const;

export function defineLogin(command: Command): void {
  command
    .argument('[url]', 'the address of the service (the one that is used now)', parseAddress)
    .addOption(new Option('--scope <scope>', 'accept only a key of this scope').choices(SCOPES))
    .option('--name <name>', 'the name of the key (the name of this computer)', parseId)
    .option('--no-browser', 'do not open the browser')
    .addHelpText(
      'after',
      `
Shows a code and opens the dashboard, where you sign in, approve the code and choose the scope of the key. The key is
kept in ~/.config/sandbar/credentials.json, which only you can read. SANDBAR_API_KEY goes before it.`,
    )
    .action(async (url, { scope, name = hostname(), browser }) => {
      const baseUrl = url ?? presentAddress();
      try {
        await logIn(baseUrl, { scope, name, opensBrowser: browser });
      } catch (error) {
        if (!(error instanceof Interrupted)) throw error;
        process.exitCode = error.exitCode;
      }
    });
  addExamples(command, 'sandbar login https://sandbar.example.com');
}

type LoginOptions = { scope: (typeof SCOPES)[number] | undefined; name: string; opensBrowser: boolean };

async function logIn(baseUrl: string, { scope, name, opensBrowser }: LoginOptions): Promise<void> {
  const signal = onInterruption();
  const code = await requestCode(baseUrl, name, signal);
  const choice = scope === undefined ? '' : ` with the scope ${scope}`;
  console.error(toPrintable(`Open ${code.verification_uri_complete}`));
  console.error(toPrintable(`and approve the code ${code.user_code}${choice}. Waiting; Ctrl-C gives up.`));
  if (opensBrowser) openBrowser(code.verification_uri_complete);
  const pause = async (seconds: number) => {
    await delay(seconds * 1000, undefined, { signal }).catch(() => signal.throwIfAborted());
  };
  const key = await pollForKey(code, { baseUrl, signal, pause, now: () => performance.now() });
  await keep(baseUrl, key, scope);
}

async function keep(baseUrl: string, { key, name, scope }: DeviceKey, wanted: string | undefined): Promise<void> {
  if (wanted !== undefined && scope !== wanted) {
    throw new ConfigurationError(
      `the approved key has the scope ${scope}, not ${wanted}, and was not kept: revoke the key "${name}" in the dashboard and log in again`,
    );
  }
  await writeLogin({ base_url: baseUrl, api_key: key });
  printLine(`Logged in to ${baseUrl} with the key "${name}" (${scope}), kept in ${loginPath()}.`);
  for (const variable of ['SANDBAR_BASE_URL', 'SANDBAR_API_KEY']) {
    if (process.env[variable] !== undefined) printNotice(`${variable} is set and goes before this login: unset it`);
  }
}

/** Parses the address of a service. Throws InvalidArgumentError unless it is an HTTP or HTTPS address. */
function parseAddress(text: string): string {
  const isAddress = URL.canParse(text) && /^https?:$/.test(new URL(text).protocol);
  if (isAddress) return text.replace(/\/+$/, '');
  throw new InvalidArgumentError('It must be an address such as https://sandbar.example.com.');
}

/** The address that the other commands use. Throws UsageError when there is none. */
function presentAddress(): string {
  try {
    // `resolveSettings` needs a key to find the address. A login sends no key, so any value will do.
    return resolveSettings({ apiKey: 'none' }).baseUrl;
  } catch (error) {
    if (!(error instanceof ConfigurationError)) throw error;
    throw new UsageError(`name the address of the service: sandbar login URL (${error.message})`);
  }
}
