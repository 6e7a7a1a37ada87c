// The environment variables of accounts and sessions: the address that browsers use, who may sign up, mail, and OpenID
// Connect.
import { BILLING_MODES, type BillingMode } from '@sandbar/contract/account.ts';
import { ConfigError } from '../config-error.ts';
import { allOrNone, type Env, readUrl } from '../environment.ts';

export type Oidc = { issuer: string; clientId: string; clientSecret: string };

export type AuthConfig = {
  /** The origin that browsers use, without a slash at its end. */
  publicUrl: string;
  signUp: 'closed' | 'open';
  /** The billing mode of accounts that users create by signing up. */
  signUpBilling: BillingMode;
  mail: { smtpUrl: string; from: string } | undefined;
  oidc: Oidc | undefined;
};

/** Reads the variables. `origin`: the origin of the API when SANDBAR_PUBLIC_URL is not set. Throws `ConfigError`. */
export function readAuthConfig(env: Env, origin: string): AuthConfig {
  return {
    publicUrl: readPublicUrl(env, origin),
    signUp: readChoice(env, 'SANDBAR_SIGN_UP', ['closed', 'open']),
    signUpBilling: readChoice(env, 'SANDBAR_SIGN_UP_BILLING', BILLING_MODES),
    mail: readMail(env),
    oidc: readOidc(env),
  };
}

function readPublicUrl(env: Env, origin: string): string {
  const name = 'SANDBAR_PUBLIC_URL';
  const url = readUrl(env, name, ['http:', 'https:'], origin);
  if (url.pathname === '/' && url.search === '' && url.hash === '' && url.username === '') return url.origin;
  throw new ConfigError(`${name} must be an origin such as https://sandbar.example.com, without a path.`);
}

function readMail(env: Env): AuthConfig['mail'] {
  const [smtpUrl, from] = allOrNone(env, ['SANDBAR_SMTP_URL', 'SANDBAR_MAIL_FROM']);
  if (smtpUrl === undefined || from === undefined) return undefined;
  readUrl(env, 'SANDBAR_SMTP_URL', ['smtp:', 'smtps:']);
  return { smtpUrl, from };
}

function readOidc(env: Env): Oidc | undefined {
  const names = ['SANDBAR_OIDC_ISSUER', 'SANDBAR_OIDC_CLIENT_ID', 'SANDBAR_OIDC_CLIENT_SECRET'];
  const [issuer, clientId, clientSecret] = allOrNone(env, names);
  if (issuer === undefined || clientId === undefined || clientSecret === undefined) return undefined;
  readUrl(env, 'SANDBAR_OIDC_ISSUER', ['http:', 'https:']);
  return { issuer: issuer.replace(/\/$/, ''), clientId, clientSecret };
}

function readChoice<T extends string>(env: Env, name: string, choices: readonly [T, ...T[]]): T {
  const text = env[name];
  if (!text) return choices[0];
  const choice = choices.find((candidate) => candidate === text);
  if (!choice) throw new ConfigError(`${name} must be ${choices.join(' or ')}, not "${text}".`);
  return choice;
}
