// Reads SANDBAR_DATABASE_URL. Like libpq, it may name several servers of one replicated database, of which one at a
// time accepts writes: postgres://USER:PASSWORD@H1:5432,H2:5432/DATABASE?target_session_attrs=read-write. The package
// pg knows one server only, so the list is split here.
import type { ClientConfig } from 'pg';
import { parse, toClientConfig } from 'pg-connection-string';
import { ConfigError } from '../config-error.ts';

/** Where a server listens. Without a host, the package pg uses PGHOST and then localhost. */
export type Server = { host?: string; port?: number };

export type DatabaseUrl = {
  /** The servers in the order of the URL, at least one. */
  servers: readonly Server[];
  /** User, password, database, TLS and the other settings, which all servers share. */
  config: ClientConfig;
};

/** Scheme and user, then the servers, then the rest. The user ends at the last `@` before the path. */
const URL_PARTS = /^(postgres(?:ql)?:\/\/(?:[^/?#]*@)?)([^/?#@]*)(.*)$/s;
const FORM = 'postgres://USER:PASSWORD@HOST:PORT/DATABASE';
/** The values of libpq that ask for a server that accepts writes. */
const WRITABLE = ['read-write', 'primary'];
const SSL_MODES = ['disable', 'require', 'verify-ca', 'verify-full'];

/** Throws `ConfigError` for a URL that cannot be used. The message never contains the password. */
export function readDatabaseUrl(url: string): DatabaseUrl {
  const [, start, authority = '', rest] = URL_PARTS.exec(url) ?? [];
  if (start === undefined) {
    throw new ConfigError(`SANDBAR_DATABASE_URL must begin with postgres:// or postgresql://: ${FORM}.`);
  }
  const [first = '', ...others] = authority.split(',');
  const { config, parameters } = parseSingle(`${start}${first}${rest}`);
  checkParameters(parameters);
  if (config.host?.includes(',') || others.length === 0) return { servers: listed(config, parameters), config };
  const servers = [first, ...others].map((host) => {
    const { host: name, port } = parseSingle(`${start}${host}${rest}`).config;
    if (!name) throw new ConfigError('SANDBAR_DATABASE_URL has a server without a name between its commas.');
    return { host: name, ...(port === undefined ? {} : { port }) };
  });
  return { servers, config };
}

type Parameters = Readonly<Record<string, unknown>>;

/** Parses a URL with one server. The modes of TLS mean what they mean to libpq. */
function parseSingle(url: string): { config: ClientConfig; parameters: Parameters } {
  try {
    const parameters = parse(url, { useLibpqCompat: true });
    return { config: toClientConfig({ ...parameters, port: firstOf(parameters.port) }), parameters: { ...parameters } };
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    throw new ConfigError(`SANDBAR_DATABASE_URL must be ${FORM}: ${reason.replaceAll(url, 'it')}.`);
  }
}

const firstOf = (list: string | null | undefined): string | null => list?.split(',')[0] ?? null;

/** Servers from the parameters `host` and `port`, which may be lists too. One port is for all hosts. */
function listed(config: ClientConfig, { port }: Parameters): Server[] {
  const hosts = (config.host ?? '').split(',');
  const ports = String(port ?? '')
    .split(',')
    .filter(Boolean)
    .map(Number);
  if (ports.length > 1 && ports.length !== hosts.length) {
    throw new ConfigError('SANDBAR_DATABASE_URL must have one port, or as many ports as hosts.');
  }
  return hosts.map((host, index) => {
    const own = ports[index] ?? ports[0];
    return { ...(host === '' ? {} : { host }), ...(own === undefined ? {} : { port: own }) };
  });
}

function checkParameters({ target_session_attrs: wanted, sslmode }: Parameters): void {
  if (wanted !== undefined && !WRITABLE.includes(String(wanted))) {
    throw new ConfigError(
      `SANDBAR_DATABASE_URL: target_session_attrs must be read-write, which is the default, not "${wanted}".`,
    );
  }
  if (sslmode !== undefined && !SSL_MODES.includes(String(sslmode))) {
    throw new ConfigError(`SANDBAR_DATABASE_URL: sslmode must be one of ${SSL_MODES.join(', ')}, not "${sslmode}".`);
  }
}

/** The server's name for logs and messages. */
export const nameOfServer = ({ host = 'the default host', port }: Server): string =>
  port === undefined ? host : `${host}:${port}`;
