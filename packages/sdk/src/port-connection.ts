// The type of a connection to a port of a machine. It is a `Duplex` of Node, but the type does not import `node:stream`,
// because a program for browsers has no types of Node and could not be compiled with such an import.

declare global {
  namespace NodeJS {
    // TypeScript merges this with the interface of the same name in the types of Node. Without these types it is empty.
    interface ReadWriteStream {}
  }
}

/** A `Duplex` of Node: pipe it, write, or read it with `for await`. `end()` ends only the direction to the program. */
export interface PortConnection extends NodeJS.ReadWriteStream {
  readonly destroyed: boolean;
  /** Cuts the connection. */
  destroy(error?: Error): unknown;
}
