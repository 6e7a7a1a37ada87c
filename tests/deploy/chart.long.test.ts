// Tests the Helm chart: helm accepts it and its values, and what it renders are valid objects of Kubernetes.
import assert from 'node:assert/strict';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, before, describe, it } from 'node:test';
import { SECRET_VARIABLES } from '@sandbar/contract/secrets.ts';
import { run } from '../packages/support/run.ts';
import { CHECKOUT, DEPLOY } from './support/checkout.ts';
import { ensureHelm, ensureKubeconform, ensureKubernetesSchemas, ensureMonitorSchema } from './support/tools.ts';

const CHART = path.join(DEPLOY, 'helm', 'sandbar');
/** The oldest version that Chart.yaml allows, and a new one. */
const [OLDEST, NEWEST] = ['1.27.0', '1.37.0'];
const KUBERNETES = [OLDEST, NEWEST];

/** Values without which the chart refuses to render. */
const NEEDED = [
  'secret.secret=0123456789012345678901234567890123456789',
  'secret.databaseUrl=postgres://u:p@db/sandbar',
];
const EVERYTHING = [
  ...[
    'secret.existingSecret=mine',
    'secret.more.SANDBAR_SMTP_URL=smtp-url',
    'settings.SANDBAR_PUBLIC_URL=https://s.example',
  ],
  ...[
    'ingress.enabled=true',
    'ingress.previewDomain=ports.example.com',
    'ingress.tlsSecret=tls',
    'ingress.className=nginx',
  ],
  ...['serviceMonitor.enabled=true', 'hostAgent.enabled=true', 'hostAgent.settings.SANDBAR_POOL_SIZE=4', 'replicas=3'],
];

const scratch = await mkdtemp(path.join(tmpdir(), 'sandbar-chart-'));
after(() => rm(scratch, { recursive: true }));

let helm = '';
let kubeconform: (file: string, version: string) => Promise<{ code: number; text: string }>;
before(async () => {
  helm = await ensureHelm();
  const [program, schemas, monitor] = [
    await ensureKubeconform(),
    await ensureKubernetesSchemas(KUBERNETES),
    await ensureMonitorSchema(),
  ];
  kubeconform = async (file, version) => {
    const locations = [
      `${schemas}/{{.NormalizedKubernetesVersion}}{{.StrictSuffix}}/{{.ResourceKind}}{{.KindSuffix}}.json`,
      `${monitor}/{{.ResourceKind}}.json`,
    ].flatMap((location) => ['-schema-location', location]);
    const args = ['-strict', '-summary', '-kubernetes-version', version, ...locations, file];
    const { code, stdout, stderr } = await run(program, args, { cwd: scratch });
    return { code, text: stdout + stderr };
  };
});

/** Numbers and switches must not become strings. */
const typed = (values: readonly string[]) =>
  values.flatMap((value) => [/=(\d+|true|false)$/.test(value) ? '--set' : '--set-string', value]);

async function render(values: readonly string[], version = NEWEST) {
  const options = ['--namespace', 'sandbar', '--kube-version', version, ...typed(values)];
  const args = ['template', 'test', CHART, ...options];
  const { code, stdout, stderr } = await run(helm, args, { cwd: scratch });
  return { code, stdout, stderr };
}

describe('the Helm chart', () => {
  it('passes helm lint --strict', async () => {
    const { code, stdout } = await run(helm, ['lint', '--strict', '--kube-version', NEWEST, CHART, ...typed(NEEDED)], {
      cwd: scratch,
    });
    assert.equal(code, 0, stdout);
  });

  for (const version of KUBERNETES) {
    for (const [name, values] of [
      ['the least values', NEEDED],
      ['everything turned on', EVERYTHING],
    ] as const) {
      it(`renders valid objects of Kubernetes ${version} with ${name}`, async () => {
        const { code, stdout, stderr } = await render(values, version);
        assert.equal(code, 0, stderr);
        const file = path.join(scratch, `${version}-${values.length}.yaml`);
        await writeFile(file, stdout);
        const { code: verdict, text } = await kubeconform(file, version);
        assert.equal(verdict, 0, text);
        assert.match(text, /Invalid: 0, Errors: 0, Skipped: 0/);
      });
    }
  }

  it('is checked by schemas that refuse an unknown field', async () => {
    const { stdout } = await render(EVERYTHING);
    for (const [kind, field] of [
      ['Deployment', 'replicas:'],
      ['ServiceMonitor', 'jobLabel:'],
    ] as const) {
      assert.ok(stdout.includes(`\n  ${field}`), `${kind} has ${field}`);
      const file = path.join(scratch, `${kind}.yaml`);
      await writeFile(file, stdout.replace(`\n  ${field}`, `\n  un${field}`));
      const { code, text } = await kubeconform(file, NEWEST);
      assert.notEqual(code, 0);
      assert.match(text, new RegExp(`${kind}.*is invalid`));
    }
  });

  it('refuses to render without a database, without a secret and with a short one', async () => {
    for (const values of [[], NEEDED.slice(0, 1), NEEDED.slice(1), ['secret.secret=short', ...NEEDED.slice(1)]]) {
      const { code, stderr } = await render(values);
      assert.notEqual(code, 0);
      assert.match(stderr, /secret\.(databaseUrl is required|secret must have)/);
    }
  });

  it('refuses values that it does not know', async () => {
    for (const value of ['replica=3', 'replicas=0', 'settings.FOO=1', 'secret.databaseUrl=mysql://x']) {
      const { code, stderr } = await render([...NEEDED, value]);
      assert.notEqual(code, 0, value);
      assert.match(stderr, /schema/, value);
    }
  });

  it('gives a pod more time to end than the control plane takes', async () => {
    const { stdout } = await render([...NEEDED, 'shutdown.drainSec=7', 'shutdown.finishSec=25']);
    assert.match(stdout, /SANDBAR_DRAIN_SEC\n\s+value: "7"/);
    assert.match(stdout, /SANDBAR_SHUTDOWN_SEC\n\s+value: "25"/);
    assert.match(stdout, /terminationGracePeriodSeconds: 42/);
  });

  it('keeps secrets in files, never in the environment of a pod', async () => {
    const { stdout } = await render(EVERYTHING);
    const names = Array.from(stdout.matchAll(/- name: ((?:SANDBAR|PG)\w+)\n/g), ([, name]) => name);
    assert.ok(names.includes('SANDBAR_DATABASE_URL_FILE') && names.includes('SANDBAR_SMTP_URL_FILE'));
    const secrets: readonly string[] = SECRET_VARIABLES;
    assert.deepEqual(
      names.filter((name = '') => secrets.includes(name)),
      [],
    );
  });

  it('has a budget for disruptions only with more than one replica', async () => {
    const [one, two] = await Promise.all([render([...NEEDED, 'replicas=1']), render([...NEEDED, 'replicas=2'])]);
    assert.equal(one.stdout.includes('kind: PodDisruptionBudget'), false);
    assert.equal(two.stdout.includes('kind: PodDisruptionBudget'), true);
  });

  it('has the version of the service', async () => {
    const { version } = JSON.parse(await readFile(path.join(CHECKOUT, 'package.json'), 'utf8')) as { version: string };
    const chart = await readFile(path.join(CHART, 'Chart.yaml'), 'utf8');
    assert.match(chart, new RegExp(`^appVersion: ${version}$`, 'm'));
  });
});
