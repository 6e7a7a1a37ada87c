// Terminals: shells in a machine that a client reaches over a WebSocket. A terminal outlives its connections.
import { type Static, Type } from 'typebox';
import { Environment, Nullable, Timestamp, Uuid } from './fields.ts';
import { ABSOLUTE_PATH_PATTERN } from './patterns.ts';
import { TERMINAL_BOUNDS, TERMINAL_CLOSES, TERMINAL_PROTOCOL } from './terminal-bounds.ts';

export { TERMINAL_BOUNDS, TERMINAL_CLOSES, TERMINAL_PROTOCOL };

const Size = (options: { default?: number; description?: string } = {}) =>
  Type.Integer({ minimum: 1, maximum: TERMINAL_BOUNDS.sizeMax, ...options });

/** The request for a ticket. Without `terminal_id` the connection opens a new terminal. */
export const TerminalSessionCreate = Type.Object(
  {
    cols: Type.Optional(Size({ default: TERMINAL_BOUNDS.colsDefault })),
    rows: Type.Optional(Size({ default: TERMINAL_BOUNDS.rowsDefault })),
    terminal_id: Type.Optional(
      Uuid('A terminal of the machine that runs already. The connection joins it, and gets its last output first.'),
    ),
    command: Type.Optional(
      Type.Array(Type.String({ maxLength: 4096 }), {
        minItems: 1,
        maxItems: 256,
        description:
          "What to run in place of the user's login shell, after the image's entrypoint where that has one. Not with terminal_id.",
      }),
    ),
    env: Type.Optional(
      Environment('Added to the environment of the image, the user and the machine. Not with terminal_id.'),
    ),
    cwd: Type.Optional(
      Type.String({
        maxLength: 4096,
        pattern: ABSOLUTE_PATH_PATTERN,
        description:
          "An absolute path. Default: the image's working directory, else the user's home. Not with terminal_id.",
      }),
    ),
    user: Type.Optional(
      Type.String({
        minLength: 1,
        maxLength: 64,
        description:
          "A name or uid, with :group or :gid if wanted. Default: the image's user, else root. Not with terminal_id.",
      }),
    ),
  },
  {
    title: 'TerminalSessionCreate',
    additionalProperties: false,
    // These fields are about a new terminal, and `terminal_id` names one that runs already.
    allOf: ['command', 'env', 'cwd', 'user'].map((name) => ({
      not: { type: 'object', required: ['terminal_id', name] },
    })),
  },
);
export type TerminalSessionCreate = Static<typeof TerminalSessionCreate>;

export const TerminalSession = Type.Object(
  {
    ticket: Type.String({ description: 'A secret that opens one connection. It is shown once.' }),
    machine_id: Uuid(),
    terminal_id: Uuid('The terminal that the connection opens or joins.'),
    ws_path: Type.String({ description: 'The path of the WebSocket. Add the query ticket=… to it.' }),
    expires_at: Timestamp('30 seconds from now.'),
  },
  { title: 'TerminalSession' },
);
export type TerminalSession = Static<typeof TerminalSession>;

/** The ticket is optional in the schema, so that a request without a ticket is answered with 401 and not with 400. */
export const TerminalQuery = Type.Object(
  { ticket: Type.Optional(Type.String({ description: 'From POST …/terminal-session.' })) },
  { additionalProperties: false },
);

export const Terminal = Type.Object(
  {
    id: Uuid(),
    created_at: Timestamp(),
    connections: Type.Integer({ minimum: 0, description: 'Clients that are connected to it now.' }),
    cols: Type.Integer({ minimum: 0 }),
    rows: Type.Integer({ minimum: 0 }),
    command: Type.Array(Type.String(), { description: 'The program that runs in it.' }),
  },
  { title: 'Terminal' },
);
export type Terminal = Static<typeof Terminal>;

export const TerminalList = Type.Object(
  { terminals: Type.Array(Terminal, { description: 'Oldest first.' }) },
  { title: 'TerminalList' },
);
export type TerminalList = Static<typeof TerminalList>;

export const TerminalParams = Type.Object({ id: Uuid('The machine.'), terminal_id: Uuid('The terminal.') });

/** A control message of a client, in a text frame of the subprotocol. */
export const TerminalResize = Type.Object(
  { type: Type.Literal('resize'), cols: Size(), rows: Size() },
  { additionalProperties: false },
);

/** The control messages of the service, in text frames of the subprotocol. `start` comes before the first data. */
export type TerminalStart = {
  type: 'start';
  terminal_id: string;
  /** The number of the first byte that follows, in the whole output of the terminal. */
  offset: number;
};
export type TerminalExit = {
  type: 'exit';
  /** Null when a signal ended the program. */
  code: number | null;
  signal: string | null;
};

/** The request `terminals.open` to a guest. A repetition with the same id has no further effect. */
export type OpenTerminal = {
  id: string;
  cols: number;
  rows: number;
  env: Record<string, string>;
  user?: string;
  cwd?: string;
  command?: string[];
  idle_sec: number;
};

/** The answers of a guest to the calls `terminals.…`, and head and result of the stream `terminals.attach`. */
export const GuestTerminalOpened = Type.Object({ id: Uuid() });
export const GuestTerminals = Type.Object({
  terminals: Type.Array(
    Type.Object({
      id: Uuid(),
      created_at: Timestamp(),
      connections: Type.Integer({ minimum: 0, maximum: 1_000_000 }),
      cols: Type.Integer({ minimum: 0, maximum: 65_535 }),
      rows: Type.Integer({ minimum: 0, maximum: 65_535 }),
      command: Type.Array(Type.String({ maxLength: 65_536 }), { maxItems: 4096 }),
    }),
    { maxItems: 1024 },
  ),
});
export const GuestTerminalDone = Type.Object({});
export const GuestTerminalHead = Type.Object({
  offset: Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER }),
});
export const GuestTerminalResult = Type.Object({
  exit_code: Nullable(Type.Integer({ minimum: 0, maximum: 255 })),
  signal: Nullable(Type.String({ maxLength: 32 })),
});
