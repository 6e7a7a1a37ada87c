// Ends a response on which nothing comes any more. Streams of the service send a heartbeat every 15 s, so a longer
// silence means that the connection is broken, although nobody has closed it.

/** How long nothing may come, ms: four heartbeats. */
const SILENCE_MS = 60_000;

/** The same response. Reading its body fails when nothing comes for `silenceMs`. */
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
    // Reads nothing ahead, so that a slow reader slows the service down as before.
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
