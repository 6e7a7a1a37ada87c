// Tests the pure rules of ports: host names, cookies and tokens in addresses.
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { portCookies, withoutDomain, withoutOurCookies } from '../src/ports/cookies.ts';
import { destinationOf } from '../src/ports/preview-host.ts';
import { locationOf, takeToken } from '../src/ports/query-token.ts';

const ID = '019b7c1e-5f6a-7b3c-9d2e-4a1f0c8e7b65';

describe('the host name of a port', () => {
  const port = (host: string, domain = 'localhost') => {
    const destination = destinationOf(host, domain);
    return destination.kind === 'port' ? destination.port : destination.kind;
  };

  it('is read with any listen port, any case and the dot of the root', () => {
    for (const host of [`80-${ID}.localhost`, `80-${ID}.localhost:7070`, `80-${ID.toUpperCase()}.LocalHost.:1`]) {
      assert.equal(port(host), 80, host);
    }
    assert.equal(port(`65535-${ID}.p.example.com`, 'p.example.com'), 65_535);
  });

  it('is of the API only when it cannot be mistaken for that of a port', () => {
    for (const host of [
      '',
      'localhost',
      'localhost:7070',
      '127.0.0.1:7070',
      '[::1]:7070',
      'x.localhost',
      `80-${ID}.test`,
    ]) {
      assert.equal(port(host), 'api', host);
    }
    const odd = [
      '80-.localhost',
      '80-x.localhost',
      `080-${ID}.localhost`,
      `0-${ID}.localhost`,
      `65536-${ID}.localhost`,
    ];
    for (const host of [...odd, `a.80-${ID}.localhost`, `80-${ID}x.localhost`])
      assert.equal(port(host), 'unknown', host);
  });
});

describe('cookies', () => {
  it('of the service never reach a machine, and all others do', () => {
    assert.equal(withoutOurCookies('a=1; sandbar_session=x; b=2'), 'a=1; b=2');
    assert.equal(withoutOurCookies('sandbar_port=x;sandbar_oidc=y; sandbar_device=z'), undefined);
    assert.equal(withoutOurCookies('not_sandbar_session=1'), 'not_sandbar_session=1');
    const name = fc.constantFrom('sandbar_session', ' sandbar_port', 'x', 'sandbar_', '', 'a;sandbar_oidc');
    fc.assert(
      fc.property(fc.array(fc.tuple(name, fc.string())), (pairs) => {
        const left = withoutOurCookies(pairs.map((pair) => pair.join('=')).join(';')) ?? '';
        assert(left.split(';').every((pair) => !pair.trimStart().startsWith('sandbar_')));
      }),
    );
  });

  it('of a machine never name a domain', () => {
    assert.equal(withoutDomain('a=1'), 'a=1');
    assert.equal(withoutDomain('a=domain; Path=/; Domain=localhost; Secure'), 'a=domain; Path=/; Secure');
    assert.equal(withoutDomain('a=1;domain ="x";DOMAIN'), 'a=1');
    assert.equal(withoutDomain(' sandbar_session =1'), undefined);
    const part = fc.constantFrom('Domain=x', ' dOmAiN = y', 'Path=/', 'a=1', '', 'HttpOnly');
    fc.assert(
      fc.property(fc.array(part), (parts) =>
        assert.doesNotMatch(withoutDomain(`n=v;${parts.join(';')}`) ?? '', /;\s*domain/i),
      ),
    );
  });

  it('with the token of a port are all read', () => {
    assert.deepEqual(portCookies('sandbar_port=a; x=1;sandbar_port=b=c'), ['a', 'b=c']);
    assert.deepEqual(portCookies(undefined), []);
  });
});

describe('a token in an address', () => {
  it('is taken out, and the rest stays as it is', () => {
    assert.deepEqual(takeToken('/a?sandbar_token=t'), { token: 't', cleanPath: '/a' });
    assert.deepEqual(takeToken('/?x=%2f&sandbar_token=t&&y'), { token: 't', cleanPath: '/?x=%2f&&y' });
    assert.deepEqual(takeToken('/?xsandbar_token=t'), { token: undefined, cleanPath: '/?xsandbar_token=t' });
    assert.deepEqual(takeToken('/?'), { token: undefined, cleanPath: '/?' });
  });

  it('leads to the same host', () => {
    fc.assert(
      fc.property(
        fc.string().map((text) => `/${text}`),
        (path) => {
          const url = URL.parse(locationOf(path), 'http://port.localhost/');
          assert(url === null || url.host === 'port.localhost', path);
        },
      ),
    );
  });
});
