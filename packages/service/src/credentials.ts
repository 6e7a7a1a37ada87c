// credentials.json: the address of the service and the API key of this machine's owner.
import { readFileSync } from 'node:fs';
import { type AdminAnswer, postAdmin } from './admin-client.ts';
import { writeAtomically } from './private-file.ts';
import { hasErrorCode, messageOf, Problem } from './problem.ts';

const OWNER = 'owner@localhost';

export type Credentials = {
  base_url: string;
  api_key: string;
  email: string;
  /** The dashboard password. Null when the account already had a password, because only the owner knows it. */
  password: string | null;
};

/** Reads the file. Returns undefined when it does not exist. Throws Problem when it cannot be used. */
export function readCredentials(file: string): Credentials | undefined {
  let text: string;
  try {
    text = readFileSync(file, 'utf8');
  } catch (error) {
    // If the folder is missing or wrong, ensureHome reports it later, because it makes the folder.
    if (hasErrorCode(error, 'ENOENT', 'ENOTDIR')) return undefined;
    throw new Problem(`Cannot read ${file} (${messageOf(error)}): make it readable, or move it away for a new key`);
  }
  try {
    const { base_url, api_key, email, password = null } = JSON.parse(text) as Partial<Record<string, unknown>>;
    if (typeof base_url !== 'string' || typeof api_key !== 'string' || !api_key || typeof email !== 'string')
      throw new Error();
    return { base_url, api_key, email, password: typeof password === 'string' ? password : null };
  } catch {
    throw new Problem(
      `${file} is damaged (it must be JSON with base_url, api_key and email): move it away and run npm start again, which makes a new key for the same account`,
    );
  }
}

/**
 * Resolves with the owner's credentials. If there is no file, makes the first account, or a new key if the account
 * exists. A file of an older version has no password, so the account gets a password and the file is completed.
 */
export async function ensureCredentials(file: string, baseUrl: string, adminSocket: string): Promise<Credentials> {
  const present = readCredentials(file);
  const isComplete = present !== undefined && present.password !== null;
  if (isComplete && present.base_url === baseUrl) return present;
  const credentials = isComplete ? { ...present, base_url: baseUrl } : await complete(present, baseUrl, adminSocket);
  await writeAtomically(file, `${JSON.stringify(credentials, null, 2)}\n`);
  return credentials;
}

async function complete(present: Credentials | undefined, baseUrl: string, adminSocket: string): Promise<Credentials> {
  const account = await postAdmin(adminSocket, '/admin/bootstrap', { email: OWNER });
  const { email, password } = account.body;
  return {
    base_url: baseUrl,
    api_key: present?.api_key ?? (await issueKey(account, adminSocket)),
    email: present?.email ?? (typeof email === 'string' ? email : OWNER),
    password: typeof password === 'string' ? password : null,
  };
}

async function issueKey(account: AdminAnswer, adminSocket: string): Promise<string> {
  // The answer has no key: the account exists, and only a hash of its first key is stored. So make another key.
  const { account_id } = account.body;
  const answer =
    account.status < 300 && account.body.api_key === null
      ? await postAdmin(adminSocket, '/admin/api-keys', { account_id, scope: 'full', name: 'credentials.json' })
      : account;
  const key = answer.body.api_key;
  if (answer.status < 300 && typeof key === 'string') return key;
  throw new Problem(`The control plane made no API key (${answer.status}): ${String(answer.body.detail)}`);
}
