import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { aptSources, buildMirrors } from './archive.ts';

describe('package sources', () => {
  const archive = {
    suite: 'trixie',
    components: ['main'],
    mirror: 'http://mirror.example/debian',
    securityMirror: 'http://mirror.example/debian-security',
  };

  test('contain the release, its updates and its security updates', () => {
    const sources = aptSources({ ...archive, signedBy: '/usr/share/keyrings/keys.pgp' });
    assert.match(sources, /^URIs: http:\/\/mirror\.example\/debian\nSuites: trixie trixie-updates$/m);
    assert.match(sources, /^URIs: http:\/\/mirror\.example\/debian-security\nSuites: trixie-security$/m);
    assert.match(sources, /^Signed-By: \/usr\/share\/keyrings\/keys\.pgp$/m);
  });

  test('contain the signing keys, with each empty line written as a dot', () => {
    const sources = aptSources({ ...archive, signedBy: '-----BEGIN-----\n\nabc\n-----END-----\n' });
    assert.match(sources, /^Signed-By:\n -----BEGIN-----\n \.\n abc\n -----END-----$/m);
  });
});

describe('mirrors of a build', () => {
  test('are those of Debian unless the environment names another', () => {
    assert.equal(buildMirrors({}).mirror, 'http://deb.debian.org/debian');
    assert.deepEqual(buildMirrors({ SANDBAR_DEBIAN_MIRROR: 'https://mirror.example/debian/' }), {
      mirror: 'https://mirror.example/debian',
      securityMirror: 'https://mirror.example/debian-security',
    });
  });

  test('security updates may come from another mirror', () => {
    const env = { SANDBAR_DEBIAN_MIRROR: 'http://a.example/x', SANDBAR_DEBIAN_SECURITY_MIRROR: 'http://b.example/y' };
    assert.equal(buildMirrors(env).securityMirror, 'http://b.example/y');
  });
});
