// The error that most failures of the CLI itself use. It has a file of its own, because main.ts needs it at every start.

/** A failure with a message for people, which is printed without a stack, and with an exit code of its own. */
export class CliError extends Error {
  override readonly name = 'CliError';
  readonly exitCode: number;

  constructor(exitCode: number, message: string) {
    super(message);
    this.exitCode = exitCode;
  }
}
