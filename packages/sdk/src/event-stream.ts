// Server-sent events, as far as the service uses them: https://html.spec.whatwg.org/multipage/server-sent-events.html
// A stream that ends in the middle of an event drops it; the reader asks again from the last complete one.

export type ServerEvent = { id: string | undefined; event: string; data: string };

/** Parses a body into events. Comments and empty events (heartbeats) are left out. */
export async function* parseEvents(body: AsyncIterable<Uint8Array>): AsyncGenerator<ServerEvent> {
  const decoder = new TextDecoder();
  let rest = '';
  let lines: string[] = [];
  for await (const chunk of body) {
    // A carriage return at the very end may be half of a line end, and waits for the other half.
    const text = rest + decoder.decode(chunk, { stream: true });
    const complete = text.endsWith('\r') ? text.slice(0, -1) : text;
    const parts = complete.split(/\r\n|\n|\r/);
    rest = (parts.pop() ?? '') + text.slice(complete.length);
    for (const line of parts) {
      if (line !== '') {
        lines.push(line);
        continue;
      }
      const event = toEvent(lines);
      lines = [];
      if (event !== undefined) yield event;
    }
  }
}

function toEvent(lines: readonly string[]): ServerEvent | undefined {
  let id: string | undefined;
  let event = 'message';
  const data: string[] = [];
  for (const line of lines) {
    const colon = line.indexOf(':');
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? '' : line.slice(colon + 1).replace(/^ /, '');
    if (field === 'data') data.push(value);
    else if (field === 'id') id = value;
    else if (field === 'event') event = value;
  }
  return data.length === 0 ? undefined : { id, event, data: data.join('\n') };
}
