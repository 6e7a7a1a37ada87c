import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { EventSourceMessage } from 'eventsource-parser';
import { parseEvents } from './event-stream.ts';

async function parse(...chunks: (string | Uint8Array<ArrayBuffer>)[]) {
  const bytes = chunks.map((chunk) => (typeof chunk === 'string' ? new TextEncoder().encode(chunk) : chunk));
  const events: EventSourceMessage[] = [];
  for await (const event of parseEvents(ReadableStream.from<Uint8Array<ArrayBuffer>>(bytes))) events.push(event);
  return events;
}

describe('event stream', () => {
  it('reads fields, data of several lines and event names', async () => {
    assert.deepEqual(await parse('id: 7\nevent: page\ndata: a\ndata:b\n\n'), [
      { id: '7', event: 'page', data: 'a\nb' },
    ]);
  });

  it('comments and events without data are skipped', async () => {
    assert.deepEqual(await parse(': heartbeat\n\nid: 1\n\ndata: x\n\n'), [
      { id: undefined, event: undefined, data: 'x' },
    ]);
  });

  it('an event that is incomplete at the end is dropped', async () => {
    assert.deepEqual(await parse('data: whole\n\ndata: cut\n'), [{ id: undefined, event: undefined, data: 'whole' }]);
  });

  it('the events are the same wherever the bytes are split, even inside a line end or a character', async () => {
    for (const text of ['id: 1\ndata: é€\n\ndata: 2\n\n', 'id: 1\r\ndata: é€\r\n\r\ndata: 2\r\n\r\n']) {
      const bytes = new TextEncoder().encode(text);
      const whole = await parse(text);
      assert.equal(whole.length, 2);
      for (let at = 0; at <= bytes.length; at++) {
        assert.deepEqual(
          await parse(bytes.subarray(0, at), bytes.subarray(at)),
          whole,
          `cut at ${at} of ${JSON.stringify(text)}`,
        );
      }
    }
  });
});
