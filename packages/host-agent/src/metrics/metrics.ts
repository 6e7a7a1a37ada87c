// The metrics of the agent: what it counts while it works. What it has now is in state.ts. docs/metrics.md has all of
// them; a test compares it with these. No label may have a machine, an address or a template.
import { START_PATHS } from '@sandbar/contract/host-api.ts';
import { Counter, Histogram, type Registry } from 'prom-client';

/** Seconds. A clone of the pool takes some milliseconds, and a cold boot under emulation 3 s. */
const START_BUCKETS = [0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30];
/** Seconds. */
const TEMPLATE_BUCKETS = [0.5, 1, 2.5, 5, 10, 20, 40, 80];

export type AgentMetrics = ReturnType<typeof createAgentMetrics>;

export function createAgentMetrics(registry: Registry) {
  const registers = [registry];
  return {
    starts: new Histogram({
      name: 'sandbar_agent_machine_start_duration_seconds',
      help: `Time in which the VM of a machine was started, up to the guest's answer, by way: ${START_PATHS.join(', ')}.`,
      labelNames: ['path'] as const,
      buckets: START_BUCKETS,
      registers,
    }),
    failedStarts: new Counter({
      name: 'sandbar_agent_machine_start_failures_total',
      help: 'Starts of machines that failed in every way.',
      registers,
    }),
    poolTakes: new Counter({
      name: 'sandbar_agent_pool_takes_total',
      help: 'Machines that could start with a clone of the pool, by result: hit (a clone was ready) or miss.',
      labelNames: ['result'] as const,
      registers,
    }),
    templateMakes: new Histogram({
      name: 'sandbar_agent_template_make_duration_seconds',
      help: 'Time in which a template was made, by outcome: made or failed.',
      labelNames: ['outcome'] as const,
      buckets: TEMPLATE_BUCKETS,
      registers,
    }),
    sessionErrors: new Counter({
      name: 'sandbar_agent_guest_session_errors_total',
      help: 'Attempts to open a session with the guest agent of a running machine again that failed.',
      registers,
    }),
  };
}
