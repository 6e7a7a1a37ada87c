// Numbers about ports that the CLI needs as well. They have a file of their own because loading schemas takes time.

export const PORT_BOUNDS = {
  /** The lifetime of a token, seconds. */
  tokenSecMin: 10,
  tokenSecDefault: 3600,
  tokenSecMax: 7 * 24 * 3600,
  /** The most public ports of a machine. */
  publicPorts: 100,
  /** The longest WebSocket message of a client, bytes. */
  messageBytes: 1024 * 1024,
} as const;

/** The subprotocol of the WebSocket of `…/ports/{port}/connect`. */
export const PORT_PROTOCOL = 'sandbar.port.v1';

/**
 * A text message of the WebSocket of `…/ports/{port}/connect`: its sender sends no more bytes, but still receives.
 * Binary messages are the bytes of the connection.
 */
export const END_OF_BYTES = '{"type":"end"}';
