// Approves the login of a program, such as `sandbar login`. The person enters the code that the program shows, or follows
// a link that fills it in, and submits it, then sees who asks, and approves or denies.
import { USER_CODE_PATTERN } from '@sandbar/contract/patterns.ts';
import { useQuery } from '@tanstack/react-query';
import { getRouteApi } from '@tanstack/react-router';
import { useState } from 'react';
import { ApiProblem, api, unwrap } from '../api/client.ts';
import { PageHead } from '../ui/page-head.tsx';
import { ProblemText } from '../ui/problem.tsx';
import { Answer } from './answer.tsx';
import { CodeForm } from './code-form.tsx';
import { Ending } from './ending.tsx';
import { isExpired } from './expired.ts';

const route = getRouteApi('/signed-in/device');

const isCode = (text: string): boolean => new RegExp(USER_CODE_PATTERN).test(text);

export function DevicePage() {
  const { user_code: code = '' } = route.useSearch();
  const navigate = route.useNavigate();
  // A code from a link is not looked up before the person submits it. Otherwise other sites could use up the account's
  // guesses with links that contain wrong codes.
  const [submitted, setSubmitted] = useState<string>();
  const lookup = useQuery({
    queryKey: ['device-login', code],
    queryFn: () => unwrap(api.POST('/v1/auth/device/lookup', { body: { user_code: code } })),
    enabled: code === submitted && isCode(code),
    // The service counts a wrong code each time that it is sent, so it is sent again only when the person asks for it.
    retry: false,
    refetchOnWindowFocus: false,
    refetchOnReconnect: false,
    staleTime: Number.POSITIVE_INFINITY,
    gcTime: 0,
  });
  const submit = (entered: string) => {
    setSubmitted(entered);
    if (entered !== code) void navigate({ search: { user_code: entered } });
    else if (code === submitted && isCode(code)) void lookup.refetch();
  };
  return (
    <>
      <PageHead title="Log a program in">
        A program such as <code>sandbar login</code> shows a code. When you approve the code, the program gets an API
        key of this account.
      </PageHead>
      {lookup.data ? (
        <Answer key={code} login={lookup.data} />
      ) : isExpired(lookup.error) ? (
        <Ending kind="expired" />
      ) : (
        <CodeForm
          key={code}
          code={code}
          busy={lookup.isFetching}
          error={errorOf(code, lookup.error)}
          onSubmit={submit}
        />
      )}
    </>
  );
}

/** A refused code needs no request id, which is for reports to the operator. */
function errorOf(code: string, error: Error | null) {
  if (code !== '' && !isCode(code)) return 'A code has eight letters, and no vowels among them.';
  if (error instanceof ApiProblem && [404, 409, 429].includes(error.status)) return error.message;
  return error ? <ProblemText error={error} /> : null;
}
