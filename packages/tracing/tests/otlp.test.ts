// Tests the traces that a process sends to a small collector over HTTP: the parents of spans, what a failure records,
// and that a slow or missing collector only loses spans.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { join } from 'node:path';
import { after, describe, it } from 'node:test';
import { ServiceError } from '@sandbar/contract/errors.ts';
import { collectorUrl, startTracing } from '../src/start.ts';
import { NO_TRACING } from '../src/tracing.ts';
import { Collector } from './support/collector.ts';

const lines: string[] = [];
const note = (...parts: unknown[]) => void lines.push(String(parts.at(-1)));
const log = { info: note, warn: note };
const collector = await Collector.start();
after(() => collector.close());

const start = (env: Record<string, string> = collector.env) => startTracing({ service: 'test', env, log });
const spanOf = (name: string) => {
  const found = collector.spans.find((span) => span.name === name);
  assert(found, `${name} was not collected`);
  return found;
};

describe('tracing', () => {
  it('is off, and loads no code of OpenTelemetry, unless the environment names a collector', async () => {
    assert.equal(await start({}), NO_TRACING);
    assert.equal(await start({ ...collector.env, OTEL_SDK_DISABLED: 'true' }), NO_TRACING);
    const program = `
      import { createRequire } from 'node:module';
      const { startTracing } = await import('${join(import.meta.dirname, '../src/start.ts')}');
      const log = { info() {}, warn() {} };
      const loaded = () => Object.keys(createRequire(import.meta.url).cache).filter((path) => path.includes('@opentelemetry'));
      await startTracing({ service: 'test', env: {}, log });
      const before = loaded().length;
      await startTracing({ service: 'test', env: { OTEL_EXPORTER_OTLP_ENDPOINT: 'http://127.0.0.1:1' }, log });
      console.log(JSON.stringify([before, loaded().length > 0]));`;
    const printed = execFileSync(process.execPath, ['--input-type=module', '-e', program], { encoding: 'utf8' });
    assert.deepEqual(JSON.parse(printed), [0, true]);
  });

  it('sends spans to the address in the environment variables of OpenTelemetry', () => {
    assert.equal(collectorUrl({ OTEL_EXPORTER_OTLP_ENDPOINT: 'http://c:4318/' }), 'http://c:4318/v1/traces');
    const own = { OTEL_EXPORTER_OTLP_ENDPOINT: 'http://c:4318', OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: 'http://t/x' };
    assert.equal(collectorUrl(own), 'http://t/x');
    assert.equal(collectorUrl({ ...own, OTEL_TRACES_EXPORTER: 'none' }), undefined);
  });

  it('does not start with wrong settings, and logs that', async () => {
    lines.length = 0;
    assert.equal(await start({ OTEL_EXPORTER_OTLP_ENDPOINT: 'no url' }), NO_TRACING);
    assert.deepEqual(lines, ['tracing is off: its settings are wrong']);
  });

  it('gives spans their parents, also across a queue and another process', async () => {
    const [here, there] = [await start(), await start()];
    const request = here.begin('request', { kind: 'server' });
    let queued = () => Promise.resolve();
    await request.run(() =>
      here.span('outer', {}, async () => {
        await here.span('inner', {}, async () => {});
        queued = here.bind(() => here.span('queued', {}, async () => {}));
        const call = there.begin('call', { kind: 'server', from: here.headers() });
        call.end();
        await here.detach(() => here.span('detached', {}, async () => {}));
      }),
    );
    await queued();
    await here.span('alone', {}, async () => {});
    await here.trace('root', {}, async () => {});
    request.end();
    await Promise.all([here.close(), there.close()]);

    const parents = ['outer', 'inner', 'queued', 'call'].map((name) => spanOf(name).parentSpanId);
    const [outer, top] = [spanOf('outer').spanId, spanOf('request').spanId];
    assert.deepEqual(parents, [top, outer, outer, outer]);
    assert.equal(spanOf('call').traceId, spanOf('request').traceId);
    assert.notEqual(spanOf('root').traceId, spanOf('request').traceId);
    const names = collector.spans.map(({ name }) => name);
    assert.ok(!names.includes('alone') && !names.includes('detached'), String(names));
  });

  it('records the code of an error and never its message', async () => {
    const tracing = await start();
    const failing = tracing.trace('failing', {}, async () => {
      throw new ServiceError('conflict', 'a text with a secret');
    });
    await assert.rejects(failing, /a text with a secret/);
    await tracing.close();
    const span = spanOf('failing');
    assert.deepEqual([span.isFailed, span.attributes['error.type']], [true, 'conflict']);
    assert.doesNotMatch(JSON.stringify(span), /secret/);
  });

  it('sends protobuf unless JSON is asked for', async () => {
    collector.contentTypes.length = 0;
    const tracing = await start({ OTEL_EXPORTER_OTLP_ENDPOINT: collector.url });
    await tracing.trace('binary', {}, async () => {});
    await tracing.close();
    assert.deepEqual(collector.contentTypes, ['application/x-protobuf']);
  });

  it('sends the headers that a collector needs', async () => {
    const tracing = await start({ ...collector.env, OTEL_EXPORTER_OTLP_HEADERS: 'api-key=of%20tests,x=y' });
    await tracing.trace('with headers', {}, async () => {});
    await tracing.close();
    assert.deepEqual([collector.headers?.['api-key'], collector.headers?.x], ['of tests', 'y']);
  });

  it('logs once when the collector takes no spans, and once when it takes spans again', async () => {
    process.env.OTEL_BSP_SCHEDULE_DELAY = '1';
    const tracing = await start();
    delete process.env.OTEL_BSP_SCHEDULE_DELAY;
    const sends = async (count: number) => {
      const before = collector.contentTypes.length;
      await tracing.trace('sent', {}, async () => {});
      while (collector.contentTypes.length < before + count) await new Promise(setImmediate);
    };
    lines.length = 0;
    collector.mode = 'refuse';
    for (let round = 0; round < 3; round++) await sends(1);
    collector.mode = 'take';
    await sends(1);
    await tracing.close();
    assert.deepEqual(lines, [
      'the collector of traces takes no spans; they are dropped until it does',
      'the collector of traces takes spans again',
    ]);
  });

  it('delays nothing while the collector hangs, and a shutdown does not wait for long', async () => {
    collector.mode = 'hang';
    const tracing = await start();
    for (let count = 0; count < 10_000; count++) await tracing.trace('hanging', {}, async () => {});
    await tracing.close();
    collector.mode = 'take';
  });
});
