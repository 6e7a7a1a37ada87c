// The tools that check the chart and the alerts, and the schemas that the chart is compared with. Each is fetched from a
// package registry or built once, and stays in the cache under a key made from its version.
import { execFile } from 'node:child_process';
import { mkdir, readdir, readFile, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { promisify } from 'node:util';
import { goEnvironment } from '@sandbar/host-agent/images/agent.ts';
import { cacheKey, ensureArtifact } from '@sandbar/host-agent/images/cache.ts';
import { CACHE } from './checkout.ts';
import { type Schema, strict } from './strict-schema.ts';

const execute = promisify(execFile);

const HELM = 'helm.sh/helm/v3/cmd/helm@v3.22.0';
const KUBECONFORM = 'github.com/yannh/kubeconform/cmd/kubeconform@v0.8.0';
const PROMETHEUS_OPERATOR = 'github.com/prometheus-operator/prometheus-operator@v0.85.0';

export const ensureHelm = (): Promise<string> => buildProgram(HELM, 'helm');
export const ensureKubeconform = (): Promise<string> => buildProgram(KUBECONFORM, 'kubeconform');

export const ensurePromtool = (): Promise<string> => unpackProgram('prometheus', 'promtool');
export const ensureCaddy = (): Promise<string> => unpackProgram('caddy', 'caddy');

/** Resolves with the path of a program from Debian's package. It is unpacked only: installed, it would start a server. */
async function unpackProgram(name: string, program: string): Promise<string> {
  const { folder } = await ensureArtifact(
    path.join(CACHE, program),
    cacheKey(name),
    async (temporary) => {
      const download = () => execute('apt-get', ['download', name], { cwd: temporary });
      await download().catch(async () => {
        // The package lists may be older than the package in the archive.
        await execute('apt-get', ['update']);
        await download();
      });
      await execute('sh', ['-c', `dpkg-deb --extract ${name}_*.deb . && rm ${name}_*.deb`], { cwd: temporary });
    },
    [`usr/bin/${program}`],
  );
  return path.join(folder, 'usr/bin', program);
}

/**
 * Resolves with a folder that has a folder for each version, `v1.37.0-strict` for example, with the schemas of Kubernetes'
 * own kinds. `npm test` names the Python that has them in SANDBAR_TEST_DEPLOY_PYTHON.
 */
export async function ensureKubernetesSchemas(versions: readonly string[]): Promise<string> {
  const python = process.env.SANDBAR_TEST_DEPLOY_PYTHON;
  if (python === undefined) throw new Error('SANDBAR_TEST_DEPLOY_PYTHON is not set: run npm test -- tests/deploy');
  // The package itself is not imported, because its own dependencies are not installed.
  const find =
    "from importlib.util import find_spec; print(*find_spec('kubernetes_validate').submodule_search_locations)";
  const { stdout } = await execute(python, ['-c', find]);
  const installed = path.join(stdout.trim(), 'kubernetes-json-schema');
  const key = cacheKey(installed, versions, 2);
  const { folder } = await ensureArtifact(path.join(CACHE, 'kubernetes-schemas'), key, async (temporary) => {
    for (const version of versions) {
      await copySchemas(path.join(installed, `v${version}-local-strict`), path.join(temporary, `v${version}-strict`));
    }
  });
  return folder;
}

/** Copies schemas so that they refer to each other by file. Their own ids are addresses on the internet. */
async function copySchemas(from: string, to: string): Promise<void> {
  await mkdir(to);
  for (const name of await readdir(from)) {
    const text = await readFile(path.join(from, name), 'utf8');
    const { $id: _id, ...schema } = JSON.parse(text) as Schema;
    const local = JSON.stringify(schema).replaceAll('"/api/_definitions.json', '"_definitions.json');
    await writeFile(path.join(to, name), local);
  }
}

/** Resolves with a folder that has servicemonitor.json, the schema of the Prometheus operator's kind. */
export async function ensureMonitorSchema(): Promise<string> {
  const { folder } = await ensureArtifact(
    path.join(CACHE, 'monitor-schema'),
    cacheKey(PROMETHEUS_OPERATOR, 1),
    async (temporary) => {
      const { stdout } = await runGo(['mod', 'download', '-json', PROMETHEUS_OPERATOR], {});
      const { Dir: sources } = JSON.parse(stdout) as { Dir: string };
      const file = path.join(sources, 'jsonnet/prometheus-operator/servicemonitors-crd.json');
      const definition = JSON.parse(await readFile(file, 'utf8')) as Definition;
      const [version] = definition.spec.versions;
      if (version === undefined) throw new Error(`${file} has no version`);
      const schema = strict(version.schema.openAPIV3Schema);
      await writeFile(path.join(temporary, 'servicemonitor.json'), JSON.stringify(schema));
    },
    ['servicemonitor.json'],
  );
  return folder;
}

type Definition = { spec: { versions: { schema: { openAPIV3Schema: Schema } }[] } };

async function buildProgram(module: string, name: string): Promise<string> {
  const { folder } = await ensureArtifact(
    path.join(CACHE, name),
    cacheKey(module),
    async (temporary) => {
      await runGo(['install', module], { GOBIN: temporary });
    },
    [name],
  );
  return path.join(folder, name);
}

/** `npm test` names its Go toolchain in SANDBAR_TEST_GO. Without that, `go` must be on the PATH or in /usr/local/go. */
function runGo(args: readonly string[], more: NodeJS.ProcessEnv) {
  const searchPath = `${process.env.PATH}:/usr/local/go/bin`;
  const env = { ...process.env, ...goEnvironment(CACHE), PATH: searchPath, ...more };
  return execute(process.env.SANDBAR_TEST_GO ?? 'go', args, { env, cwd: CACHE, maxBuffer: 1 << 26 });
}
