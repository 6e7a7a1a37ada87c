// What a user can do about each error code. The page of the error codes shows these texts. The compiler reports a code
// that has no text.
import type { ErrorCode } from '@sandbar/contract/errors.ts';

/** The texts by error code, in Markdown. */
export const REMEDIES = {
  validation_error:
    'Correct the field that `detail` names. The same request fails again, so do not repeat it. A frequent cause is a field with a wrong name: bodies are strict, and an unknown field is refused. The [API reference](./api/objects.md) has all fields with their bounds.',
  authorization_pending:
    'This is no failure. Show the person the code and the address, and poll again after `interval` seconds until somebody has approved or denied it. `sandbar login` does so by itself.',
  slow_down: 'Wait 5 seconds longer between two polls than before, and go on polling. The code is still valid.',
  expired_token:
    'Begin a new device login: run `sandbar login` again, and approve the new code within 10 minutes. Each code gives one key, once.',
  access_denied:
    'Ask the person who denied it. If nobody did, their account may not make keys any more, for example because it is suspended. Then begin a new device login with another account.',
  unauthenticated:
    'Check that the request carries `Authorization: Bearer sbr_…` and that the key belongs to this service: `sandbar whoami` tells which address and which account are used. If the key was revoked or has expired, create another one in the dashboard under "API keys", or sign in again with `sandbar login`. A terminal ticket is valid once and for a short time; ask for a new one.',
  insufficient_balance:
    'Add money: in the dashboard under "Billing" where payments are configured, else ask the operator. Machines that were stopped keep their disks and can be started as soon as the balance is above zero. [Billing](../billing.md) says what is charged.',
  forbidden:
    'Use a credential that may do this. `detail` says what is missing: a key of scope `read` changes nothing, keys are managed only by a signed-in person, and a suspended account can only read. On a host without hardware virtualisation, only the first account may have machines unless the operator allows more ([running it](../guides/running.md#other-settings)).',
  password_required:
    'This happens only with a dashboard session. Send the password to `POST /v1/auth/confirm-password`, then repeat the request within 15 minutes. The dashboard asks by itself.',
  sign_in_required:
    'This happens only with a dashboard session of an account that signs in through a provider. Open `GET /v1/auth/oidc/sign-in?confirm=true` in the browser, sign in again, and repeat the request. The dashboard leads there by itself.',
  quota_exceeded:
    '`detail` names the dimension (machines, vcpus, memory_mb, storage_gb or volumes) with what is used, requested and allowed. Destroy what is not needed any more, ask for less, or ask the operator for a higher limit. `sandbar quota` shows the present use. Stopped machines count toward machines and storage_gb.',
  not_found:
    'Check the id. An object of another account answers in the same way, so check the account too (`sandbar whoami`). A machine may have expired: `sandbar machine ls --state destroyed` shows those that are gone. For a file, `detail` names the path that is missing; paths are absolute.',
  method_not_allowed: 'Use a method that the [API reference](./api/machines.md) lists for this path.',
  conflict:
    '`detail` says which state prevents the call, and usually what to do: start a stopped machine before a command, detach a volume before you delete it, delete the snapshots of a machine before you destroy it, stop what holds a mount. When an operation is under way, wait until it ends and repeat the request. An idempotency key that was used with another body needs a new key; the SDKs make a new one for each create.',
  endpoint_retired:
    'Call the replacement that `detail` and the `Link` header name. Update the SDK or the program that made the call.',
  output_expired:
    'The output cannot be read any more; run the command again. To keep output, read it while the job runs or soon after its end, or have the command write to a file. How much a machine keeps is set by `SANDBAR_KEPT_OUTPUT_BYTES` and `SANDBAR_KEPT_OUTPUT_JOBS` ([running it](../guides/running.md#other-settings)).',
  payload_too_large:
    'Send less in one request. Contents of files have no such limit: write them with the [file calls](../guides/files.md) instead of putting them into a command. The stdin of a job that was started with an open stdin can be sent in pieces.',
  unsupported_media_type:
    'Send `Content-Type: application/json` with a JSON body. The contents of files, archives and stdin are raw bytes: `application/octet-stream`.',
  range_not_satisfiable:
    'Ask for a range that begins within the file; `Content-Range` has its present size. The file has probably become shorter since the last read, so begin again at 0.',
  rate_limited:
    'Wait as many seconds as `Retry-After` says, then repeat the request. The SDKs do so by themselves for waits of up to 20 s. If it happens often, send fewer requests: wait for a job with `wait_ms` or its event stream instead of asking again and again. For a limit of open streams or connections, close those that are not needed.',
  internal_error:
    'Repeat the request once; the SDKs do not repeat it by themselves. If it fails again, give the request id from `detail` (also in the header `X-Request-Id`) to the operator, who finds the cause in the log. It is a mistake of Sandbar, so please report it.',
  port_not_open:
    'Start the server in the machine, and let it listen on `0.0.0.0` or on localhost at this port. `detail` names the ports that are open, and `sandbar ports MACHINE` lists them with their processes. A server needs a moment to start, so try again after a second.',
  disk_full:
    "Free some room on the machine's disk (`df -h` in it shows how much there is), attach a [volume](../guides/volumes-and-snapshots.md), or create the machine with a larger root disk.",
  fleet_capacity:
    'Wait as many seconds as `Retry-After` says, and try again. No quota of the account is full; the hosts are. A smaller machine may fit. The operator can add memory, disk or a host, or raise the factors of overcommit.',
  host_unavailable:
    "Try again after the seconds in `Retry-After`. The machine's host is being restarted or cannot be reached; machines usually go on running meanwhile. If it lasts, the operator looks at `sandbar doctor` and at the page Hosts of the dashboard.",
  payments_unavailable:
    'Nothing was charged. Try again in a few minutes. If it lasts, the operator finds the answer of the payment provider in the log.',
  shutting_down:
    'Repeat the request after the seconds in `Retry-After`; the SDKs do so by themselves. It is safe: creates carry an idempotency key, so nothing is made twice.',
  database_unavailable:
    'Repeat the request; the SDKs do so by themselves. Machines and jobs go on meanwhile. If it lasts, the operator looks at the log of PostgreSQL in the data directory.',
} satisfies Record<ErrorCode, string>;
