// Reads server-sent events from the body of a response. When the body ends in the middle of an event, that event is
// dropped.
import { type EventSourceMessage, EventSourceParserStream } from 'eventsource-parser/stream';
import { ConnectionError } from './errors.ts';

/** Yields each event when it is complete. Comments and events without data (heartbeats) are skipped. */
export function parseEvents(body: ReadableStream<Uint8Array<ArrayBuffer>>): AsyncIterable<EventSourceMessage> {
  return body.pipeThrough(new TextDecoderStream()).pipeThrough(new EventSourceParserStream());
}

/** Yields the JSON of each event of a response. Throws ConnectionError when the connection breaks. */
export async function* readEvents<T>(response: Response, baseUrl: string): AsyncGenerator<T> {
  if (response.body === null) return;
  try {
    for await (const { data } of parseEvents(response.body)) yield JSON.parse(data) as T;
  } catch (error) {
    throw new ConnectionError(baseUrl, error);
  }
}
