// Ends a response on which no data arrives any more. Streams of the service send a heartbeat every 15 s, so a longer
// silence means that the connection is broken, even if nobody has closed it.

/** How long a response may be silent, ms. A working stream sends four heartbeats in this time. */
const SILENCE_MS = 60_000;

/** Returns the same response, but reading its body fails when no data arrives for `silenceMs`. */
export function limitSilence(response: Response, silenceMs = SILENCE_MS): Response {
  if (response.body === null) return response;
  const { status, statusText, headers } = response;
  return new Response(limited(response.body, silenceMs), { status, statusText, headers });
}

function limited(body: ReadableStream<Uint8Array>, silenceMs: number): ReadableStream<Uint8Array> {
  const reader = body.getReader();
  return new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        const { done, value } = await withinMs(reader.read(), silenceMs).catch((error: unknown) => {
          void reader.cancel(error).catch(() => undefined);
          throw error;
        });
        if (done) controller.close();
        else controller.enqueue(value);
      },
      cancel: (reason) => reader.cancel(reason),
    },
    // Read nothing ahead, so that a slow reader still slows the service down.
    { highWaterMark: 0 },
  );
}

async function withinMs<T>(result: Promise<T>, ms: number): Promise<T> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const silence = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`nothing came for ${ms} ms`)), ms);
  });
  try {
    return await Promise.race([result, silence]);
  } finally {
    clearTimeout(timer);
  }
}
