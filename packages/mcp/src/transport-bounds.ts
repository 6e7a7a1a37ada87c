// Limits that both transports (HTTP and stdio) share.

/** The longest message of a client, bytes. The largest file for file_write fits, even with every character escaped. */
export const MESSAGE_BYTES = 16 * 1024 * 1024;

/** When the server ends, it waits this long for its calls to cancel their jobs and destroy their machines, ms. */
export const SETTLE_MS = 15_000;
