// One machine by its id: what can be done inside of it.
import { Files } from './files.ts';
import type { Transport } from './transport.ts';

export class MachineHandle {
  readonly id: string;
  readonly files: Files;

  constructor(transport: Transport, id: string) {
    this.id = id;
    this.files = new Files(transport, id);
  }
}
