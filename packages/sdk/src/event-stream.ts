// Reads server-sent events from the body of a response. When the body ends in the middle of an event, that event is
// dropped.
import { type EventSourceMessage, EventSourceParserStream } from 'eventsource-parser/stream';

/** Yields each event when it is complete. Comments and events without data (heartbeats) are skipped. */
export function parseEvents(body: ReadableStream<Uint8Array<ArrayBuffer>>): AsyncIterable<EventSourceMessage> {
  return body.pipeThrough(new TextDecoderStream()).pipeThrough(new EventSourceParserStream());
}
