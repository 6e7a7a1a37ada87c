// The error for most failures of the CLI itself. It has its own small file because every start of the CLI loads it.

/** A failure with its own exit code. Its message is written for people and printed without a stack. */
export class CliError extends Error {
  override readonly name = 'CliError';
  readonly exitCode: number;

  constructor(exitCode: number, message: string) {
    super(message);
    this.exitCode = exitCode;
  }
}
