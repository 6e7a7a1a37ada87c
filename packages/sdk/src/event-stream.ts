// Reads server-sent events from the body of an answer. An event that the end of the body cuts off is dropped.
import { type EventSourceMessage, EventSourceParserStream } from 'eventsource-parser/stream';

/** The events of a body as they come. Comments and events without data (heartbeats) are left out. */
export function parseEvents(body: ReadableStream<Uint8Array<ArrayBuffer>>): AsyncIterable<EventSourceMessage> {
  return body.pipeThrough(new TextDecoderStream()).pipeThrough(new EventSourceParserStream());
}
