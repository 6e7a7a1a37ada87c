// Fuzzes the parsers of image references and of the index, manifest and configuration of a layout. For any input, a
// parser must either refuse it or return something valid that contains nothing unchecked.
import assert from 'node:assert/strict';
import { ImageError } from '../../src/images/image-error.ts';
import { readImageExec } from '../../src/images/image-exec.ts';
import { parseConfiguration, parseIndex, parseManifest } from '../../src/images/import/layout-documents.ts';
import { indexOf, parseEntries } from '../../src/images/import/layout-index.ts';
import { parseReference } from '../../src/images/import/reference.ts';
import { Refusal } from '../../src/images/import/refusal.ts';
import { Finding, type FuzzOptions, Random, shrink } from './fuzzing.ts';

const DIGEST = `sha256:${'a'.repeat(64)}`;
const DESCRIPTOR = { mediaType: 'application/vnd.oci.image.layer.v1.tar+gzip', digest: DIGEST, size: 7 };
const TAG = 'org.opencontainers.image.ref.name';
const PLATFORM = { os: 'linux', architecture: 'amd64' };
const ENTRY = { ...DESCRIPTOR, annotations: { [TAG]: 'one' }, platform: PLATFORM };
const EXEC = { Env: ['PATH=/bin', 'A='], User: 'app:staff', WorkingDir: '/srv', Entrypoint: ['/bin/run'], Cmd: null };

type Target = { example: object | string; check: (text: string) => void };

const targets: readonly [Target, ...Target[]] = [
  { example: { schemaVersion: 2, manifests: [ENTRY, DESCRIPTOR] }, check: checkEntries },
  { example: { schemaVersion: 2, manifests: [ENTRY] }, check: (text) => checkDescriptors([parseIndex(text)]) },
  {
    example: { schemaVersion: 2, config: DESCRIPTOR, layers: [DESCRIPTOR, DESCRIPTOR] },
    check: (text) => {
      const { config, layers } = parseManifest(text);
      checkDescriptors([config, ...layers]);
    },
  },
  { example: { ...PLATFORM, config: EXEC, rootfs: { type: 'layers', diff_ids: [DIGEST] } }, check: checkConfiguration },
  { example: `docker://host.example:5000/group/name:tag@${DIGEST}`, check: checkReference },
  { example: 'oci:/nowhere/layout:tag', check: checkReference },
  { example: '[::1]:5000/name:tag', check: checkReference },
];

function checkEntries(text: string): void {
  for (const entry of parseEntries(text, 'index.json')) {
    const { mediaType, digest, size } = entry;
    checkDescriptors([{ mediaType, digest, size }]);
    const annotations = { [TAG]: 'image' };
    const index = { schemaVersion: 2, manifests: [{ mediaType, digest, size, annotations }] };
    assert.equal(indexOf(entry, 'image'), JSON.stringify(index));
  }
}

function checkDescriptors(descriptors: readonly object[]): void {
  for (const descriptor of descriptors) {
    assert.deepEqual(Object.keys(descriptor), ['mediaType', 'digest', 'size']);
    assert.match(JSON.stringify(descriptor), /"digest":"sha256:[0-9a-f]{64}","size":\d{1,16}}$/);
  }
}

function checkConfiguration(text: string): void {
  const { config, ...rest } = parseConfiguration(text);
  // Convert to JSON and back, because the report reaches the host as JSON.
  const report = JSON.parse(JSON.stringify({ config, ...rest }));
  const { env, user, cwd, entrypoint } = readImageExec(report.config);
  for (const value of [...Object.values(env), ...entrypoint, user ?? '', cwd ?? '/']) {
    assert.equal(typeof value, 'string');
    assert.doesNotMatch(value, /\0/);
  }
  assert.match(cwd ?? '/', /^\//);
}

function checkReference(text: string): void {
  const source = parseReference(text, false);
  if (source.kind !== 'registry') assert.fail('a path that does not exist');
  // Name and version become part of a command-line argument: docker://NAME:TAG or docker://NAME@DIGEST.
  assert.match(source.name, /^[A-Za-z0-9[][A-Za-z0-9[\]:._/-]*$/);
  assert.match(source.version, /^(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}|@sha256:[0-9a-f]{64})$/);
}

/** Runs until `until` returns true. Throws `Finding`. `accepted` is the number of inputs that were not refused. */
export async function fuzzManifests({ seed, until }: FuzzOptions) {
  const result = { cases: 0, accepted: 0 };
  while (!until()) {
    // Let timers and signals run between two batches.
    await new Promise((resolve) => setImmediate(resolve));
    for (const end = result.cases + 1000; result.cases < end; result.cases++) {
      const random = new Random(seed, result.cases);
      const { example, check } = random.pick(targets);
      const input = Buffer.from(changed(example, random));
      const wrong = problemOf(check, input);
      if (wrong === undefined) result.accepted++;
      if (wrong === undefined || wrong === 'refused') continue;
      const isWrong = async (smaller: Buffer) => problemOf(check, smaller) === wrong;
      throw new Finding(wrong, { seed, caseNumber: result.cases, input: await shrink(input, 1, isWrong) });
    }
  }
  return result;
}

function problemOf(check: Target['check'], input: Buffer): string | undefined {
  try {
    check(input.toString());
    return undefined;
  } catch (error) {
    if (error instanceof Refusal || error instanceof ImageError) return 'refused';
    return error instanceof Error ? `${error.name}: ${error.message.slice(0, 500)}` : String(error);
  }
}

/** Returns the example as text, with a few changes. */
function changed(example: object | string, random: Random): string {
  let text = typeof example === 'string' ? example : JSON.stringify(changedValue(example, random, 0.06));
  while (random.chance(0.35)) text = changedText(text, random);
  return text;
}

const ODD_VALUES = [
  null,
  true,
  0,
  -1,
  1.5,
  2 ** 60,
  '',
  '\0',
  '..',
  '-x',
  DIGEST,
  `${DIGEST}a`,
  [],
  {},
  [[]],
  ['=', 'A=\0'],
] as const;

function changedValue(value: unknown, random: Random, probability: number): unknown {
  if (random.chance(probability)) return random.pick(ODD_VALUES);
  if (Array.isArray(value)) {
    const items = value.flatMap((item) =>
      random.chance(probability) ? [] : [changedValue(item, random, probability)],
    );
    return random.chance(probability) ? [...items, ...items] : items;
  }
  if (typeof value !== 'object' || value === null) return value;
  const entries = Object.entries(value).map(([key, item]): [string, unknown] => {
    const name = random.chance(probability) ? random.pick(['__proto__', 'toString', key.toUpperCase()]) : key;
    return [name, changedValue(item, random, probability)];
  });
  return Object.fromEntries(entries);
}

const PIECES = [
  '"',
  '{',
  '}',
  '[',
  ']',
  ',',
  ':',
  '\\u0000',
  '\\ud800',
  '"__proto__":',
  '"layers":[],',
  '1e999',
  '-0',
] as const;
const MORE_PIECES = [
  '/',
  '@',
  '..',
  '%2f',
  '\n',
  ' ',
  '\0',
  'é',
  '-',
  'docker://',
  'oci:',
  `@${DIGEST}`,
  '_',
  '//',
] as const;

function changedText(text: string, random: Random): string {
  const at = random.below(text.length + 1);
  const kind = random.below(20);
  if (kind === 0) return text.slice(0, at) + text.slice(at).replace(/(?<=:)"[^"]*"|(?<=:\[)/, nested(random));
  if (kind < 6) return text.slice(0, at) + text.slice(at + 1 + random.below(4));
  if (kind < 10) return text.slice(0, at) + text.slice(random.below(text.length));
  return text.slice(0, at) + random.pick([...PIECES, ...MORE_PIECES]) + text.slice(at);
}

/** A list in a list in a list and so on, which some programs read and cannot write. */
function nested(random: Random): string {
  const depth = random.pick([2, 1000, 100_000]);
  return '['.repeat(depth) + ']'.repeat(depth);
}
