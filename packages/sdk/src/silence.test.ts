import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { limitSilence } from './silence.ts';

describe('the limit of silence', () => {
  it('ends a response on which no data arrives, and cancels its source', async () => {
    let canceled = false;
    const body = new ReadableStream<Uint8Array>({
      start: (controller) => controller.enqueue(Buffer.from('first')),
      cancel: () => {
        canceled = true;
      },
    });
    const read = limitSilence(new Response(body, { status: 206 }), 20).text();
    await assert.rejects(read, /nothing came for 20 ms/);
    assert.ok(canceled);
  });

  it('does not change a response that arrives in time', async () => {
    const response = limitSilence(new Response('text', { status: 206, headers: { etag: '"1"' } }), 60_000);
    assert.deepEqual([response.status, response.headers.get('etag'), await response.text()], [206, '"1"', 'text']);
  });
});
