// Bounds that both transports share.

/** The longest message of a client, bytes: a file of file_write, in which each character may be escaped. */
export const MESSAGE_BYTES = 16 * 1024 * 1024;

/** How long a server that ends waits for its calls to cancel their jobs and destroy their machines, ms. */
export const SETTLE_MS = 15_000;
