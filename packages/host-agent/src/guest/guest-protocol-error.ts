// This error has its own file, because the agent needs the error but must not load the parsers that throw it.

/** The guest has violated the protocol. */
export class GuestProtocolError extends Error {}
