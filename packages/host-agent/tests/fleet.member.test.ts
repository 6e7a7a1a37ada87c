// Tests the identity of a joined host: what is accepted as its certificate, and what a crash leaves.
import assert from 'node:assert/strict';
import { X509Certificate } from 'node:crypto';
import { rmSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, beforeEach, describe, it } from 'node:test';
import { CONTROL_PLANE_NAME, hostNameOf } from '@sandbar/contract/fleet.ts';
import { makeCertificateRequest, makeKey } from '../src/fleet/certificate-request.ts';
import { fitsKey } from '../src/fleet/check-certificate.ts';
import { readIdentity, removeFleetFiles } from '../src/fleet/fleet-files.ts';
import { FleetMember } from '../src/fleet/fleet-member.ts';
import { TestAuthority } from './support/authority.ts';
import { HOST_ID, HOST_NAME, joinedHome } from './support/fleet-host.ts';
import { MortalFiles } from './support/mortal-files.ts';

const OTHER_ID = '019a0000-0000-7000-8000-0000000000bb';

describe('the identity of a joined host', () => {
  let authority: TestAuthority;
  let home: string;
  const homes: string[] = [];
  before(async () => {
    authority = await TestAuthority.make();
  });
  beforeEach(async () => {
    home = await joinedHome(authority);
    homes.push(home);
  });
  after(() => {
    for (const one of homes) rmSync(one, { recursive: true });
  });

  const open = () => FleetMember.open(home, HOST_ID) ?? assert.fail('the host has not joined');
  const issue = async (member: FleetMember) => authority.sign(await member.requestCertificate(), [HOST_NAME]);
  /** The certificate that the next agent uses, after a check that it fits its key. */
  const stored = () => {
    const { key, certificate } = open().identity;
    assert.ok(fitsKey(new X509Certificate(certificate), key));
    return certificate;
  };

  it('is readable by root only', () => {
    assert.equal(statSync(join(home, 'fleet')).mode & 0o777, 0o700);
    assert.equal(statSync(join(home, 'fleet/identity.json')).mode & 0o777, 0o600);
  });

  it('is renewed with a new key, and is the same for the next agent', async () => {
    const member = open();
    const old = member.identity;
    const issued = await issue(member);
    member.install(issued);
    assert.equal(member.identity.certificate, issued.certificate);
    assert.notEqual(member.identity.key, old.key);
    assert.deepEqual(open().identity, member.identity);
  });

  it('is renewed again with another key', async () => {
    const member = open();
    const keys = new Set([member.identity.key]);
    for (let round = 0; round < 2; round++) {
      member.install(await issue(member));
      keys.add(member.identity.key);
    }
    assert.equal(keys.size, 3);
  });

  it('is renewed by two replicas at once, and a repeated installation changes nothing', async () => {
    const member = open();
    const [one, other] = [await issue(member), await issue(member)];
    for (const issued of [one, other, one]) member.install(issued);
    assert.equal(stored(), one.certificate);
  });

  it('is not replaced by a certificate of another key, host or authority, nor by one that has expired', async () => {
    const member = open();
    const { identity } = member;
    const request = await member.requestCertificate();
    const fitting = await authority.sign(request, [HOST_NAME]);
    const stranger = await TestAuthority.make('another fleet');
    const strange = await authority.sign(await makeCertificateRequest(makeKey(), HOST_ID), [HOST_NAME]);
    const wrong = {
      'of another key': strange,
      'for another host': await authority.sign(request, [hostNameOf(OTHER_ID)]),
      'for the control plane': await authority.sign(request, [CONTROL_PLANE_NAME]),
      'for two names': await authority.sign(request, [HOST_NAME, CONTROL_PLANE_NAME]),
      'of an authority that is not among those sent': { ...fitting, authorities: [stranger.pem] },
      'that has expired': await authority.sign(request, [HOST_NAME], new Date(Date.now() - 1000)),
      'that is no certificate': { ...fitting, certificate: 'x' },
      'with a second block': { ...fitting, certificate: fitting.certificate + fitting.certificate },
      'with an authority that is none': { ...fitting, authorities: [authority.pem, fitting.certificate] },
    };
    for (const [what, issued] of Object.entries(wrong))
      assert.throws(() => member.install(issued), { code: 'validation_error' }, what);
    assert.deepEqual([member.identity, readIdentity(home)], [identity, identity]);
    member.install(fitting);
  });

  it('is the old or the new one, and whole, whichever step of the renewal was the last (CTL-2)', async () => {
    const files = new MortalFiles();
    try {
      const ends = new Set<string>();
      let isThrough = false;
      for (let pass = 1; !isThrough; pass++) {
        for (const when of ['before', 'after'] as const) {
          home = await joinedHome(authority);
          homes.push(home);
          const old = stored();
          files.begin({ pass, when });
          const issued = await issue(open()).catch(() => undefined);
          try {
            if (issued) open().install(issued);
          } catch {
            // The agent is dead.
          }
          isThrough = !files.isDead;
          files.revive();
          const now = stored();
          ends.add(now === old ? 'old' : 'new');
          assert.ok([old, issued?.certificate].includes(now), `killed ${when} change ${pass}`);
          const next = open();
          const again = await issue(next);
          next.install(again);
          assert.equal(stored(), again.certificate);
        }
      }
      assert.deepEqual([...ends].sort(), ['new', 'old']);
    } finally {
      files.close();
    }
  });

  it('is not renewed any more when the host has left the fleet', async () => {
    const member = open();
    const issued = await issue(member);
    removeFleetFiles(home);
    assert.throws(() => member.install(issued), { code: 'conflict' });
    assert.equal(FleetMember.open(home, HOST_ID), undefined);
  });

  it('is refused on a host with another id, to which it was copied', () => {
    assert.throws(() => FleetMember.open(home, OTHER_ID), { code: 'validation_error', message: /another host/ });
  });
});
