// The type of a connection to a port of a machine. The connection is a `Duplex` of Node. But this file does not import
// `node:stream`: a program for browsers has no types of Node, so it would not compile with that import.

declare global {
  namespace NodeJS {
    // TypeScript merges this with the interface of the same name in the types of Node. Without those, it stays empty.
    interface ReadWriteStream {}
  }
}

/**
 * A `Duplex` of Node: pipe it, write to it, or read it with `for await`. `end()` closes only the direction to the program
 * in the machine; you can still read its answer.
 */
export interface PortConnection extends NodeJS.ReadWriteStream {
  readonly destroyed: boolean;
  /** Closes the connection at once, in both directions. */
  destroy(error?: Error): unknown;
}
