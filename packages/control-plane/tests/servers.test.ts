// Tests how SANDBAR_DATABASE_URL is read.
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { readDatabaseUrl } from '../src/db/servers.ts';

describe('SANDBAR_DATABASE_URL', () => {
  it('names one server, with what all servers share', () => {
    const { servers, config } = readDatabaseUrl('postgres://u:p%40ss@db.example.com:6432/sandbar?application_name=x');
    assert.deepEqual(servers, [{ host: 'db.example.com', port: 6432 }]);
    assert.deepEqual([config.user, config.password, config.database], ['u', 'p@ss', 'sandbar']);
  });

  const lists: [string, object[]][] = [
    [
      'postgres://u:p@h1:5433,h2:5434/db?target_session_attrs=read-write',
      [
        { host: 'h1', port: 5433 },
        { host: 'h2', port: 5434 },
      ],
    ],
    ['postgresql://u@h1,h2:5434/db', [{ host: 'h1' }, { host: 'h2', port: 5434 }]],
    [
      'postgres://u@[::1]:5433,[fd00::2]:5434/db',
      [
        { host: '::1', port: 5433 },
        { host: 'fd00::2', port: 5434 },
      ],
    ],
    [
      'postgres://u@/db?host=h1,h2&port=5433,5434',
      [
        { host: 'h1', port: 5433 },
        { host: 'h2', port: 5434 },
      ],
    ],
    [
      'postgres://u@/db?host=h1,h2&port=5433',
      [
        { host: 'h1', port: 5433 },
        { host: 'h2', port: 5433 },
      ],
    ],
    ['postgres://u@localhost/db?host=%2Frun%2Fpostgresql', [{ host: '/run/postgresql' }]],
    ['postgres://u@/db', [{}]],
  ];
  for (const [url, servers] of lists) {
    it(`names the servers of ${url}`, () => {
      assert.deepEqual(readDatabaseUrl(url).servers, servers);
    });
  }

  it('has the modes of TLS of libpq', () => {
    const sslOf = (query: string) => readDatabaseUrl(`postgres://u@h1,h2/db?${query}`).config.ssl;
    assert.equal(sslOf('sslmode=disable'), false);
    assert.deepEqual({ ...(sslOf('sslmode=require') as object) }, { rejectUnauthorized: false });
    assert.deepEqual({ ...(sslOf('sslmode=verify-full') as object) }, {});
  });

  const refused: [string, RegExp][] = [
    ['mysql://u:secret@h/db', /must begin with postgres/],
    ['postgres://u:secret@h1,,h2/db', /server without a name/],
    ['postgres://u:secret@h1/db?target_session_attrs=read-only', /target_session_attrs must be read-write/],
    ['postgres://u:secret@h1/db?sslmode=prefer', /sslmode must be one of disable, require/],
    ['postgres://u:secret@h1/db?sslmode=verify-ca', /sslrootcert/],
    ['postgres://u:secret@/db?host=h1,h2,h3&port=1,2', /as many ports as hosts/],
    ['postgres://u:secret@h1:port/db', /must be postgres:/],
  ];
  for (const [url, words] of refused) {
    it(`is refused without showing the password: ${url}`, () => {
      assert.throws(
        () => readDatabaseUrl(url),
        (error: Error) => {
          assert.equal(error.constructor.name, 'ConfigError');
          assert.match(error.message, words);
          assert.doesNotMatch(error.message, /secret/);
          return true;
        },
      );
    });
  }
});
