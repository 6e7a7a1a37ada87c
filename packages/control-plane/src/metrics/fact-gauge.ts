// A gauge whose values are computed for each scrape from facts that many gauges share. prom-client's own gauge keeps
// its values by a hash of their labels, which is most of the cost of a scrape with 1,000 hosts.
import { Gauge, type Registry } from 'prom-client';

export type FactValue = { labels: Record<string, string>; value: number };

export type FactGaugeOptions = {
  name: string;
  help: string;
  labelNames: readonly string[];
  /** Returns the values for a scrape. When it rejects, the scrape has no values of this gauge. */
  read: () => Promise<FactValue[]>;
};

class FactGauge extends Gauge {
  readonly #read: FactGaugeOptions['read'];

  constructor({ name, help, labelNames, read }: FactGaugeOptions) {
    super({ name, help, labelNames, registers: [] });
    this.#read = read;
  }

  override async get() {
    const { values: _none, ...described } = await super.get();
    return { ...described, values: await this.#read().catch(() => []) };
  }
}

/** Adds a gauge to the registry. */
export function addFactGauge(registry: Registry, options: FactGaugeOptions): void {
  registry.registerMetric(new FactGauge(options));
}
