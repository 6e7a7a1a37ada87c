// The metrics that the code of this replica counts while it works. What the database knows about the whole service is
// in fleet.ts, and what this process uses is in process.ts. docs/metrics.md has all of them; a test compares it with
// this.
//
// No label may have an account, a machine, an address or anything else that grows with use: only values of fixed tables
// (error codes, kinds of operations, routes), and the ids and names of hosts.
import { Counter, Gauge, Histogram, type Registry } from 'prom-client';

/** Seconds. A create from the pool takes 10 ms, and a cold boot under emulation 3 s. */
const CREATE_BUCKETS = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60];
/** Seconds. */
const EXEC_BUCKETS = [0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30];

export type Metrics = ReturnType<typeof createMetrics>;

/** Creates the metrics of one replica. Several replicas in one process need a registry each. */
export function createMetrics(registry: Registry) {
  const counter = <Label extends string>(name: string, help: string, ...labelNames: Label[]) =>
    new Counter({ name, help, labelNames, registers: [registry] });
  const histogram = <Label extends string>(name: string, help: string, buckets: number[], ...labelNames: Label[]) =>
    new Histogram({ name, help, buckets, labelNames, registers: [registry] });
  return {
    requests: counter(
      'sandbar_http_requests_total',
      'Requests answered, by method, route and status.',
      ...['method' as const, 'route' as const, 'status' as const],
    ),
    errors: counter(
      'sandbar_http_errors_total',
      'Answers with an error, by the error code of the API.',
      'code' as const,
    ),
    rateLimited: counter(
      'sandbar_http_rate_limited_total',
      'Requests refused because a rate limit was used up, by the limit.',
      'limit' as const,
    ),
    signIns: counter(
      'sandbar_sign_ins_total',
      'Attempts to sign in with a password, by outcome: accepted or refused.',
      'outcome' as const,
    ),
    creates: histogram(
      'sandbar_machine_create_duration_seconds',
      'Time of a create request from its first check to the running machine, by the way in which the host started ' +
        'the machine: pool, clone, bare (a clone of a bare template), resume (of a memory snapshot), cold or unknown. ' +
        'Creates that fail are not in it.',
      CREATE_BUCKETS,
      'path' as const,
    ),
    execStarts: counter(
      'sandbar_exec_starts_total',
      'Jobs that requests asked a host to start, by outcome: started or failed.',
      'outcome' as const,
    ),
    execStartSeconds: histogram(
      'sandbar_exec_start_duration_seconds',
      'Time from the admission of a job to the answer of its host that it was started. If the request waits for the end ' +
        'of the job, the host answers when the job has ended, at most 30 ms after the start.',
      EXEC_BUCKETS,
    ),
    outputBytes: counter(
      'sandbar_exec_output_bytes_total',
      'Bytes of job output that were given to clients, by the form: page (of a read or an exec) or events.',
      'form' as const,
    ),
    operationsStarted: counter(
      'sandbar_operations_started_total',
      'Operations that requests and tasks of this replica began, by kind.',
      'kind' as const,
    ),
    operationsFinished: counter(
      'sandbar_operations_finished_total',
      'Operations that this replica finished, by kind and outcome: done, or refused (then what was done is undone).',
      ...['kind' as const, 'outcome' as const],
    ),
    failedAttempts: counter(
      'sandbar_operation_failed_attempts_total',
      'Attempts at an operation that failed and are repeated later, by kind.',
      'kind' as const,
    ),
    streams: new Gauge({
      name: 'sandbar_streams_open',
      help:
        'What clients have open at this replica, by kind: terminal, port (connections and requests), event (streams of ' +
        'job output), file (transfers), watch (of files).',
      labelNames: ['kind'],
      registers: [registry],
    }),
  };
}
