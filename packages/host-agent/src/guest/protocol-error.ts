/** The guest has violated the protocol. */
export class GuestProtocolError extends Error {}
