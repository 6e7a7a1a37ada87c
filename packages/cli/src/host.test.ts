// Tests `sandbar host join` and `leave` against a stand-in for the control plane, with a real authority.
import assert from 'node:assert/strict';
import { X509Certificate } from 'node:crypto';
import { existsSync, mkdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import type { ServerResponse } from 'node:http';
import { hostname } from 'node:os';
import path from 'node:path';
import { beforeEach, describe, it } from 'node:test';
import type { HostJoin } from '@sandbar/contract/fleet.ts';
import { hostNameOf, JOIN_PATH } from '@sandbar/contract/fleet.ts';
import { fitsKey } from '@sandbar/host-agent/fleet/check-certificate.ts';
import { readIdentity, readJoinRecord } from '@sandbar/host-agent/fleet/fleet-files.ts';
import type { HostStatus } from '@sandbar/service/fleet/host-status.ts';
import { publicKeyIn, TestAuthority } from '../../host-agent/tests/support/authority.ts';
import { answerJson, type Call, CLI, environment, makeFolder, run, startServer } from './test-support.ts';

const isRoot = process.getuid?.() === 0;

const folder = makeFolder();
const authority = await TestAuthority.make();
let homes = 0;
let token: string;
let home: string;
/** The requests that the control plane got, and how it answers. Status 0: it closes the connection. */
let joins: HostJoin[];
let answer: (join: HostJoin) => Promise<object>;
let status: number;

const onCall = async (call: Call, response: ServerResponse): Promise<void> => {
  if (call.url !== JOIN_PATH || call.method !== 'POST') return answerJson(response, 404, { code: 'not_found' });
  const join = JSON.parse(call.body.toString()) as HostJoin;
  joins.push(join);
  if (status === 0) response.destroy();
  else answerJson(response, status, await answer(join));
};
const url = await startServer((call, response) => void onCall(call, response));

describe('sandbar host', { skip: !isRoot && 'needs root' }, () => {
  beforeEach(() => {
    homes += 1;
    home = path.join(folder, `${homes}`);
    joins = [];
    status = 200;
    token = `sbh_${'a'.repeat(43)}.${authority.fingerprint}`;
    answer = (join) => authority.sign(join.certificate_request, [hostNameOf(join.host_id)]);
  });

  const host = (...args: string[]) =>
    run(process.execPath, [CLI, 'host', ...args], environment({ SANDBAR_HOME: home }));
  const join = (...args: string[]) =>
    host('join', '--url', url, '--token', token, '--address', '10.1.2.3:7072', ...args);
  const isJoined = () => readIdentity(home) !== undefined;
  /** Runs a command that must fail, and returns its message. */
  const refusal = async (running: ReturnType<typeof host>) => {
    const { code, stderr } = await running;
    assert.equal(code, 1, stderr);
    return stderr;
  };

  it('join stores the key, the certificate and the authorities, readable by root only, and says what to do', async () => {
    const { code, stdout, stderr } = await join('--listen', '10.1.2.3:7073');
    assert.equal(code, 0, stderr);
    assert.match(`${stdout}`, /has joined http.*\n.*host id.*[\s\S]*10\.1\.2\.3:7072[\s\S]*sandbar host run/);
    const [sent] = joins;
    const { hostId } = JSON.parse(readFileSync(path.join(home, 'host.json'), 'utf8'));
    const expected = { token, host_id: hostId, name: hostname(), address: '10.1.2.3:7072' };
    assert.deepEqual(sent, { ...expected, certificate_request: sent?.certificate_request });
    const identity = readIdentity(home);
    assert(identity);
    assert.ok(fitsKey(new X509Certificate(identity.certificate), identity.key));
    assert.deepEqual(identity.authorities, [authority.pem]);
    const record = { url, address: '10.1.2.3:7072', host_id: hostId, listen: '10.1.2.3:7073' };
    assert.deepEqual(readJoinRecord(home), record);
    assert.equal(statSync(path.join(home, 'fleet')).mode & 0o777, 0o700);
    assert.doesNotMatch(`${stdout}${stderr}`, /PRIVATE|sbh_/);
  });

  it('join may be repeated after a lost answer: the host and its key are the same', async () => {
    status = 0;
    assert.match(await refusal(join()), /Cannot reach .*may be run again/);
    assert.equal(isJoined(), false);
    status = 200;
    assert.equal((await join()).code, 0);
    const [first, second] = joins.map((sent) => [sent.host_id, publicKeyIn(sent.certificate_request)]);
    assert.deepEqual(first, second);
  });

  it('join refuses an answer of anyone but the control plane that made the token', async () => {
    const stranger = await TestAuthority.make('stranger');
    const others: (typeof answer)[] = [
      (sent) => stranger.sign(sent.certificate_request, [hostNameOf(sent.host_id)]),
      async (sent) => ({
        ...(await stranger.sign(sent.certificate_request, [hostNameOf(sent.host_id)])),
        authorities: [authority.pem],
      }),
      (sent) => authority.sign(sent.certificate_request, [hostNameOf('019a0000-0000-7000-8000-0000000000bb')]),
      async () => ({ certificate: (await authority.pair('x')).cert, authorities: [authority.pem] }),
    ];
    for (const other of others) {
      answer = other;
      assert.match(await refusal(join()), /not of the control plane that made the token/);
      assert.equal(isJoined(), false);
    }
    answer = async () => ({ hello: 'world' });
    assert.match(await refusal(join()), /did not answer as Sandbar does/);
  });

  it('join says what is wrong with the token, the URL and the addresses, and sends nothing', async () => {
    const good = token;
    token = 'sbr_key';
    assert.match(await refusal(join()), /no token for a host.*sandbar admin host token/);
    token = good;
    const wrong: [string[], RegExp][] = [
      [['--url', 'sandbar.example.com'], /--url must be/],
      [['--address', '10.0.0.5'], /--address must be HOST:PORT/],
      [['--address', '10.0.0.5:0'], /--address must be HOST:PORT/],
      [['--listen', 'all'], /--listen must be HOST:PORT/],
      [
        ['--url', 'http://192.0.2.1', '--address', '127.0.0.1:7072'],
        /do not reach this one at 127\.0\.0\.1.*--address/,
      ],
      [['--url', 'http://192.0.2.1', '--address', 'localhost:7072'], /do not reach this one at localhost/],
      [['--url', 'http://192.0.2.1', '--address', '[::1]:7072'], /do not reach this one at ::1/],
    ];
    for (const [args, message] of wrong) assert.match(await refusal(join(...args)), message);
    assert.equal(joins.length, 0);
    assert.match(
      await refusal(join('--url', 'http://127.0.0.1:8')),
      /Cannot reach http:\/\/127\.0\.0\.1:8.*ECONNREFUSED/,
    );
  });

  it('join passes on why the control plane refuses', async () => {
    status = 401;
    answer = async () => ({ code: 'unauthenticated', detail: 'The join token is expired.' });
    assert.match(await refusal(join()), /refuses the token: The join token is expired\./);
    status = 503;
    answer = async () => ({ code: 'internal_error', detail: 'Later.' });
    assert.match(await refusal(join()), /refuses this host \(internal_error\): Later\./);
  });

  it('join uses the address from which it reaches the control plane, unless --address names another', async () => {
    const { code, stderr } = await host('join', '--url', url, '--token', token);
    assert.equal(code, 0, stderr);
    assert.equal(joins[0]?.address, '127.0.0.1:7072');
    assert.equal(readJoinRecord(home)?.listen, '0.0.0.0:7072');
    await join('--again', '--address', '[2001:db8::5]:7099');
    assert.deepEqual([joins[1]?.address, readJoinRecord(home)?.listen], ['[2001:db8::5]:7099', '[::]:7099']);
  });

  it('join refuses a host that has joined, but with --again joins it with a new key', async () => {
    assert.equal((await join()).code, 0);
    const before = readIdentity(home);
    assert.match(await refusal(join()), /has joined .* already .*--again/);
    assert.equal((await join('--again', '--address', '10.1.2.4:7072')).code, 0);
    assert.equal(readJoinRecord(home)?.address, '10.1.2.4:7072');
    assert.notEqual(readIdentity(home)?.key, before?.key);
    assert.equal(joins[0]?.host_id, joins[1]?.host_id);
  });

  it('join refuses the data directory of a control plane', async () => {
    mkdirSync(home);
    writeFileSync(path.join(home, 'secret'), 'x');
    assert.match(await refusal(join()), /control plane of its own.*SANDBAR_HOME/);
    assert.equal(joins.length, 0);
  });

  it('run needs a host that has joined', async () => {
    assert.match(await refusal(host('run')), /has not joined a fleet.*sandbar host join/);
  });

  it('status says where the host has joined, and that its agent does not run', async () => {
    const none = await host('status');
    assert.deepEqual([none.code, /has not joined a fleet/.test(none.stderr)], [1, true]);
    assert.equal((await join()).code, 0);
    const { code, stdout } = await host('status', '--json');
    const { healthy, problems, fleet, agent_pid } = JSON.parse(`${stdout}`) as HostStatus;
    assert.deepEqual([code, healthy, agent_pid, problems.length], [1, false, null, 1]);
    assert.deepEqual([fleet?.url, fleet?.address, fleet?.listen], [url, '10.1.2.3:7072', '0.0.0.0:7072']);
    const certificate = new X509Certificate(readIdentity(home)?.certificate ?? '');
    assert.equal(Date.parse(fleet?.certificate_until ?? ''), certificate.validToDate.getTime());
  });

  it('leave removes the key, unless there are machines or disks', async () => {
    assert.equal((await join()).code, 0);
    const machine = path.join(home, 'machines', '019a0000-0000-7000-8000-0000000000bb');
    mkdirSync(machine, { recursive: true });
    assert.match(await refusal(host('leave')), /still has 1 machine:.*--force/);
    assert.equal(isJoined(), true);
    const { code, stdout } = await host('leave', '--force');
    assert.deepEqual([code, `${stdout}`], [0, `This host has left ${url}.\n`]);
    assert.deepEqual([existsSync(path.join(home, 'fleet')), existsSync(machine)], [false, true]);
    assert.match(`${(await host('leave', '--force')).stdout}`, /in no fleet/);
  });
});
