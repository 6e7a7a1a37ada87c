// Shows which program asks for an API key, and asks the person for the answer.
import type { FormEvent } from 'react';
import { api, type Schemas, unwrap } from '../api/client.ts';
import { SCOPES, type Scope } from '../api-keys/scopes.ts';
import { Button } from '../ui/button.tsx';
import { Failure } from '../ui/failure.tsx';
import { Time } from '../ui/time.tsx';
import { useSingle } from '../ui/use-single.ts';
import { visibleText } from '../ui/visible-text.ts';
import styles from './device.module.css';
import { Ending } from './ending.tsx';
import { isExpired } from './expired.ts';

type Decision = { kind: 'approved'; scope: Scope } | { kind: 'denied' };

const HINTS: Record<Scope, string> = {
  read: 'The program sees everything of the account and changes nothing.',
  full: 'The program can do everything but manage API keys and the account.',
};

export function Answer({ login }: { login: Schemas['DeviceLogin'] }) {
  const { user_code } = login;
  const answer = useSingle({
    mutationFn: async (decision: Decision) => {
      if (decision.kind === 'denied') await unwrap(api.POST('/v1/auth/device/deny', { body: { user_code } }));
      else await unwrap(api.POST('/v1/auth/device/approve', { body: { user_code, scope: decision.scope } }));
      return decision.kind;
    },
  });
  const submit = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    answer.run({ kind: 'approved', scope: new FormData(event.currentTarget).get('scope') as Scope });
  };
  if (answer.data !== undefined) return <Ending kind={answer.data} />;
  if (isExpired(answer.error)) return <Ending kind="expired" />;
  return (
    <form className={styles.box} onSubmit={submit} aria-labelledby="device-login">
      <h2 id="device-login">Give this program an API key?</h2>
      <p className={styles.warning}>
        <strong>Only approve a code that you asked for.</strong> Deny it if somebody sent you the code or a link with
        it: their program would get into your account.
      </p>
      <dl className={styles.facts}>
        <dt>Code</dt>
        <dd>
          <code className={styles.code}>{user_code}</code>
        </dd>
        <dt>Computer</dt>
        <dd>
          <bdi>{visibleText(login.name)}</bdi>
        </dd>
        <dt>Address</dt>
        <dd>
          <code>{login.address}</code>
        </dd>
        <dt>Asked</dt>
        <dd>
          <Time at={login.created_at} />
        </dd>
      </dl>
      <fieldset className={styles.scopes}>
        <legend>Scope of the key</legend>
        {(Object.keys(SCOPES) as Scope[]).map((scope) => (
          <label key={scope}>
            <input type="radio" name="scope" value={scope} required />
            <span>
              {SCOPES[scope]}
              <small>{HINTS[scope]}</small>
            </span>
          </label>
        ))}
      </fieldset>
      <Failure error={answer.error} />
      <div className={styles.buttons}>
        <Button type="submit" kind="primary" busy={answer.isPending}>
          Approve
        </Button>
        <Button kind="danger" busy={answer.isPending} onClick={() => answer.run({ kind: 'denied' })}>
          Deny
        </Button>
      </div>
    </form>
  );
}
