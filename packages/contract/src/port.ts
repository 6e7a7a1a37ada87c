// Ports: what programs in a machine serve over TCP, the address at which a browser reaches it, and who may use it.
import { type Static, Type } from 'typebox';
import { Nullable, OneOf, Timestamp, Uuid } from './fields.ts';
import { PORT_PATTERN } from './patterns.ts';
import { END_OF_BYTES, PORT_BOUNDS, PORT_PROTOCOL } from './port-bounds.ts';

export { END_OF_BYTES, PORT_BOUNDS, PORT_PROTOCOL };

/** `private`: only with a credential of the account or a token of the port. `public`: everybody. */
export const PORT_ACCESSES = ['private', 'public'] as const;
export type PortAccess = (typeof PORT_ACCESSES)[number];

export const Port = Type.Object(
  {
    port: Type.Integer(),
    process: Nullable(
      Type.String({ description: 'The name of the program that listens. Null when it is unknown or none listens.' }),
    ),
    protocol: OneOf(['tcp'] as const),
    url: Type.String({ description: 'Where a browser reaches the port. HTTP/1.1, WebSocket and server-sent events.' }),
    access: OneOf(PORT_ACCESSES, { description: 'private: a credential or a token is needed. public: everybody.' }),
  },
  { title: 'Port' },
);
export type Port = Static<typeof Port>;

export const PortList = Type.Object({ ports: Type.Array(Port) }, { title: 'PortList' });
export type PortList = Static<typeof PortList>;

export const PortParams = Type.Object({
  id: Uuid(),
  port: Type.String({
    pattern: PORT_PATTERN,
    description: 'A TCP port, 1 to 65535.',
  }),
});

export const PortUpdate = Type.Object(
  { access: OneOf(PORT_ACCESSES) },
  { title: 'PortUpdate', additionalProperties: false },
);
export type PortUpdate = Static<typeof PortUpdate>;

export const PortTokenCreate = Type.Object(
  {
    expires_in_sec: Type.Optional(
      Type.Integer({
        minimum: PORT_BOUNDS.tokenSecMin,
        maximum: PORT_BOUNDS.tokenSecMax,
        default: PORT_BOUNDS.tokenSecDefault,
        description: 'How long the token is valid.',
      }),
    ),
  },
  { title: 'PortTokenCreate', additionalProperties: false },
);
export type PortTokenCreate = Static<typeof PortTokenCreate>;

export const PortToken = Type.Object(
  {
    token: Type.String({ description: 'For the header X-Sandbar-Key of programs.' }),
    url: Type.String({ description: 'Opens the port in a browser, which then has a cookie instead of the token.' }),
    expires_at: Timestamp(),
  },
  { title: 'PortToken' },
);
export type PortToken = Static<typeof PortToken>;

/** What a guest answers to `ports.list`. A guest is not trusted, so everything is bounded. */
export const GuestPorts = Type.Object({
  ports: Type.Array(
    Type.Object({
      port: Type.Integer({ minimum: 1, maximum: 65_535 }),
      protocol: OneOf(['tcp'] as const),
      process: Nullable(Type.String({ maxLength: 256 })),
    }),
    { maxItems: 2048 },
  ),
});
export type GuestPorts = Static<typeof GuestPorts>;
