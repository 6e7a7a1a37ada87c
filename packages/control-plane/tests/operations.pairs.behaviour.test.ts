// Tests every pair of an unfinished operation and a request that arrives meanwhile, from one table. The request joins
// the operation, waits for its end, cancels it, is refused, or runs beside it. Each table cell is one test, in which
// the fake host does not answer the operation's call until the test releases it.
import assert from 'node:assert/strict';
import { afterEach, describe, it } from 'node:test';
import type { OperationRow } from '../src/db/tables.ts';
import { type Asked, type Relation, relate } from '../src/operations/relate.ts';
import type { Fault, Operation } from './support/fake-host/calls.ts';
import { checkAll } from './support/in-order.ts';
import { until } from './support/postgres.ts';
import { type Answer, startTestBed } from './support/test-bed.ts';
import { somebodyWaitsFor } from './support/waiting.ts';

/**
 * What happens to the request. `joined`: it gets the operation's result. `waits N`: it starts after the operation has
 * ended and is answered N. `waits, noop`: it waits, then finds that nothing is left to do. `cancels`: it ends the
 * operation, and the operation's own request gets an error. `404`, `409`: it is refused at once. `beside N`: it is
 * answered N while the operation goes on. `- …`: the pair cannot occur, for the given reason.
 */
type Cell =
  | 'joined'
  | `waits ${number}`
  | 'waits, noop'
  | 'cancels'
  | '404'
  | '409'
  | `beside ${number}`
  | `- ${string}`;

const COLUMNS = [
  ...(['start', 'stop', 'destroy', 'restore the same', 'restore another', 'snapshot', 'attach the same'] as const),
  ...(['attach another', 'detach', 'delete the volume', 'delete the snapshot', 'exec', 'PATCH', 'GET'] as const),
];
type Column = (typeof COLUMNS)[number];

const NEVER_RAN = '- a machine that never ran has no snapshot';

/**
 * One row for each operation under way, one column for each request. "The same" volume or snapshot is the one that the
 * operation works on. If the operation has none, the request uses a snapshot of the machine, or a volume attached to it
 * (a free volume when the operation is a create). Moves between hosts are in moves.volumes.behaviour.test.ts and
 * moves.machines.behaviour.test.ts.
 */
const TABLE: Record<Exclude<OperationRow['kind'], 'expire' | 'move' | 'remove_copy'>, Record<Column, Cell>> = {
  create: {
    start: 'waits, noop',
    stop: 'waits 200',
    destroy: 'cancels',
    'restore the same': NEVER_RAN,
    'restore another': NEVER_RAN,
    snapshot: 'waits 201',
    'attach the same': 'waits 200',
    'attach another': 'waits 200',
    detach: '409',
    'delete the volume': 'beside 204',
    'delete the snapshot': NEVER_RAN,
    exec: 'waits 201',
    PATCH: 'beside 200',
    GET: 'beside 200',
  },
  start: {
    start: 'joined',
    stop: 'waits 200',
    destroy: 'cancels',
    'restore the same': 'waits 200',
    'restore another': 'waits 200',
    snapshot: 'waits 201',
    'attach the same': 'waits, noop',
    'attach another': 'waits 200',
    detach: 'waits 200',
    'delete the volume': '409',
    'delete the snapshot': 'beside 204',
    exec: 'waits 201',
    PATCH: 'beside 200',
    GET: 'beside 200',
  },
  stop: {
    start: 'waits 200',
    stop: 'joined',
    destroy: 'cancels',
    'restore the same': 'waits 200',
    'restore another': 'waits 200',
    snapshot: 'waits 201',
    'attach the same': 'waits, noop',
    'attach another': 'waits 200',
    detach: 'waits 200',
    'delete the volume': '409',
    'delete the snapshot': 'beside 204',
    exec: '409',
    PATCH: 'beside 200',
    GET: 'beside 200',
  },
  destroy: {
    start: '409',
    stop: '409',
    destroy: 'joined',
    'restore the same': '409',
    'restore another': '409',
    snapshot: '409',
    'attach the same': '409',
    'attach another': '409',
    detach: '409',
    'delete the volume': '409',
    'delete the snapshot': 'beside 204',
    exec: '409',
    PATCH: '409',
    GET: 'beside 200',
  },
  restore: {
    start: 'waits, noop',
    stop: 'waits 200',
    destroy: 'cancels',
    'restore the same': 'joined',
    'restore another': 'waits 200',
    snapshot: 'waits 201',
    'attach the same': 'waits, noop',
    'attach another': 'waits 200',
    detach: 'waits 200',
    'delete the volume': '409',
    'delete the snapshot': 'waits 204',
    exec: 'waits 201',
    PATCH: 'beside 200',
    GET: 'beside 200',
  },
  snapshot: {
    start: 'waits, noop',
    stop: 'waits 200',
    destroy: 'cancels',
    'restore the same': '404',
    'restore another': 'waits 200',
    snapshot: 'waits 201',
    'attach the same': 'waits, noop',
    'attach another': 'waits 200',
    detach: 'waits 200',
    'delete the volume': '409',
    'delete the snapshot': '404',
    exec: 'beside 201',
    PATCH: 'beside 200',
    GET: 'beside 200',
  },
  attach: {
    start: 'waits, noop',
    stop: 'waits 200',
    destroy: 'cancels',
    'restore the same': 'waits 200',
    'restore another': 'waits 200',
    snapshot: 'waits 201',
    'attach the same': 'joined',
    'attach another': 'waits 200',
    detach: 'waits 200',
    'delete the volume': 'waits 409',
    'delete the snapshot': 'beside 204',
    exec: 'beside 201',
    PATCH: 'beside 200',
    GET: 'beside 200',
  },
  detach: {
    start: 'waits, noop',
    stop: 'waits 200',
    destroy: 'cancels',
    'restore the same': 'waits 200',
    'restore another': 'waits 200',
    snapshot: 'waits 201',
    'attach the same': 'waits 200',
    'attach another': 'waits 200',
    detach: 'joined',
    'delete the volume': 'waits 204',
    'delete the snapshot': 'beside 204',
    exec: 'beside 201',
    PATCH: 'beside 200',
    GET: 'beside 200',
  },
  delete_volume: {
    start: 'beside 200',
    stop: 'beside 200',
    destroy: 'beside 200',
    'restore the same': 'beside 200',
    'restore another': 'beside 200',
    snapshot: 'beside 201',
    'attach the same': '404',
    'attach another': 'beside 200',
    detach: '404',
    'delete the volume': 'joined',
    'delete the snapshot': 'beside 204',
    exec: 'beside 201',
    PATCH: 'beside 200',
    GET: 'beside 200',
  },
  delete_snapshot: {
    start: 'beside 200',
    stop: 'beside 200',
    destroy: 'beside 200',
    'restore the same': '404',
    'restore another': 'beside 200',
    snapshot: 'beside 201',
    'attach the same': 'beside 200',
    'attach another': 'beside 200',
    detach: 'beside 200',
    'delete the volume': '409',
    'delete the snapshot': 'joined',
    exec: 'beside 201',
    PATCH: 'beside 200',
    GET: 'beside 200',
  },
  create_volume: {
    start: 'beside 200',
    stop: 'beside 200',
    destroy: 'beside 200',
    'restore the same': 'beside 200',
    'restore another': 'beside 200',
    snapshot: 'beside 201',
    'attach the same': '404',
    'attach another': 'beside 200',
    detach: '404',
    'delete the volume': '404',
    'delete the snapshot': 'beside 204',
    exec: 'beside 201',
    PATCH: 'beside 200',
    GET: 'beside 200',
  },
};
type Kind = keyof typeof TABLE;
const KINDS = Object.keys(TABLE) as Kind[];

/** Builds an operation with only the columns that `relate` reads. */
const asked = (kind: Kind, subject: Partial<Asked> = {}): Asked => ({
  ...{ kind, machine_id: null, volume_id: null, snapshot_id: null, args: {} },
  ...subject,
});
const MOUNT = { args: { mount_path: '/mnt/data' } };
const UNDER_WAY: Record<Kind, Asked> = {
  create: asked('create', { machine_id: 'm' }),
  start: asked('start', { machine_id: 'm' }),
  stop: asked('stop', { machine_id: 'm' }),
  destroy: asked('destroy', { machine_id: 'm', args: { keep_volume_id: 'kept' } }),
  restore: asked('restore', { machine_id: 'm', snapshot_id: 's' }),
  snapshot: asked('snapshot', { machine_id: 'm', snapshot_id: 'new' }),
  attach: asked('attach', { machine_id: 'm', volume_id: 'v', ...MOUNT }),
  detach: asked('detach', { machine_id: 'm', volume_id: 'v' }),
  delete_volume: asked('delete_volume', { volume_id: 'v' }),
  delete_snapshot: asked('delete_snapshot', { snapshot_id: 's' }),
  create_volume: asked('create_volume', { volume_id: 'v' }),
};
const REQUESTS: Partial<Record<Column, Asked>> = {
  start: asked('start', { machine_id: 'm' }),
  stop: asked('stop', { machine_id: 'm' }),
  destroy: asked('destroy', { machine_id: 'm' }),
  'restore the same': asked('restore', { machine_id: 'm', snapshot_id: 's' }),
  'restore another': asked('restore', { machine_id: 'm', snapshot_id: 's2' }),
  snapshot: asked('snapshot', { machine_id: 'm', snapshot_id: 'newer' }),
  'attach the same': asked('attach', { machine_id: 'm', volume_id: 'v', ...MOUNT }),
  'attach another': asked('attach', { machine_id: 'm', volume_id: 'v2', ...MOUNT }),
  detach: asked('detach', { machine_id: 'm', volume_id: 'v' }),
  'delete the volume': asked('delete_volume', { volume_id: 'v' }),
  'delete the snapshot': asked('delete_snapshot', { snapshot_id: 's' }),
};

describe('the rule of', () => {
  for (const kind of KINDS) {
    for (const column of COLUMNS) {
      const request = REQUESTS[column];
      const relation = request && relationOf(kind, column, request);
      if (!request || !relation) continue;
      it(`${kind} under way, ${column} asked for: ${relation}`, () => {
        assert.equal(relate({ ...UNDER_WAY[kind], undoing: false }, request), relation);
      });
      it(`${kind} being taken back, ${column} asked for: ${relation === 'join' && kind !== 'destroy' ? 'wait' : relation}`, () => {
        const expected = relation === 'join' && kind !== 'destroy' ? 'wait' : relation;
        assert.equal(relate({ ...UNDER_WAY[kind], undoing: true }, request), expected);
      });
    }
  }

  it('an attach of the same volume to another path: wait', () => {
    const elsewhere = asked('attach', { machine_id: 'm', volume_id: 'v', args: { mount_path: '/mnt/elsewhere' } });
    assert.equal(relate({ ...UNDER_WAY.attach, undoing: false }, elsewhere), 'wait');
  });

  it('an attach of the same volume to another machine: wait', () => {
    const elsewhere = asked('attach', { machine_id: 'm2', volume_id: 'v', ...MOUNT });
    assert.equal(relate({ ...UNDER_WAY.attach, undoing: false }, elsewhere), 'wait');
  });

  it('a delete of a machine ends what is under way for it, and nothing of another machine', () => {
    const other = asked('destroy', { machine_id: 'm2' });
    assert.equal(relate({ ...UNDER_WAY.start, undoing: false }, other), 'wait');
  });
});

/**
 * Returns the relation that `relate` must report for this table cell, or undefined if the two share no machine, volume
 * or snapshot.
 */
function relationOf(kind: Kind, column: Column, request: Asked): Relation | undefined {
  const underWay = UNDER_WAY[kind];
  const shares = (['machine_id', 'volume_id', 'snapshot_id'] as const).some(
    (name) => underWay[name] !== null && underWay[name] === request[name],
  );
  if (!shares) return undefined;
  const cell = TABLE[kind][column];
  if (cell === 'joined') return 'join';
  if (cell === 'cancels') return 'cancel';
  if (cell.startsWith('waits')) return 'wait';
  const machineIsLeaving = kind === 'destroy' && cell === '409' && request.machine_id !== null;
  return machineIsLeaving ? 'refuse' : undefined;
}

const bed = await startTestBed({
  host: { subnet: '10.83.0.0/16', memory_mb: 1_000_000 },
  replicas: 2,
  timing: { claimTtlMs: 30_000, claimRenewMs: 1_000 },
});
const { api, host, accountId } = bed;
const { db } = bed.plane.app;
afterEach(() => host.heal());

type Scene = { machine: string; volume: string; snapshot: string; otherSnapshot?: string; otherVolume?: string };

const make = async (path: string, body: object, status = 201): Promise<string> => {
  const answer = await api('POST', path, { body });
  assert.equal(answer.status, status, answer.text);
  return answer.json.id;
};
const makeMachine = () => make('/v1/machines', { memory_mb: 128 });
const makeVolume = () => make('/v1/volumes', { size_gb: 5 });
const makeSnapshot = (machine: string) => make(`/v1/machines/${machine}/snapshots`, {});
const attach = (volume: string, machine: string) =>
  api('POST', `/v1/volumes/${volume}/attach`, { body: { machine_id: machine } });
const stopped = async (): Promise<string> => {
  const id = await makeMachine();
  assert.equal((await api('POST', `/v1/machines/${id}/stop`)).status, 200);
  return id;
};

type Row = {
  /** The host call that the fake host does not answer, so that the operation stays unfinished. */
  step: Operation;
  arrange: (scene: Scene) => Promise<void>;
  ask: (scene: Scene) => Promise<Answer>;
  status: number;
  /** The action that the operation writes to the activity feed when it succeeds. */
  entry: string;
};

const running = async (scene: Scene) => {
  scene.machine = await makeMachine();
};
const ROWS: Record<Kind, Row> = {
  create: {
    step: 'ensure',
    arrange: async () => undefined,
    ask: () => api('POST', '/v1/machines', { body: { memory_mb: 128 } }),
    status: 201,
    entry: 'machine.created',
  },
  start: {
    step: 'ensure',
    arrange: async (scene) => {
      scene.machine = await stopped();
    },
    ask: ({ machine }) => api('POST', `/v1/machines/${machine}/start`),
    status: 200,
    entry: 'machine.started',
  },
  stop: {
    step: 'ensure',
    arrange: running,
    ask: ({ machine }) => api('POST', `/v1/machines/${machine}/stop`),
    status: 200,
    entry: 'machine.stopped',
  },
  destroy: {
    step: 'delete',
    arrange: running,
    // When the disk is kept, snapshots are deleted last, so they still exist while the delete call hangs.
    ask: ({ machine }) => api('DELETE', `/v1/machines/${machine}?delete_snapshots=true&preserve_storage=true`),
    status: 200,
    entry: 'machine.destroyed',
  },
  restore: {
    step: 'ensure',
    arrange: async (scene) => {
      scene.machine = await makeMachine();
      scene.snapshot = await makeSnapshot(scene.machine);
    },
    ask: ({ snapshot }) => api('POST', `/v1/snapshots/${snapshot}/restore`),
    status: 200,
    entry: 'snapshot.restored',
  },
  snapshot: {
    step: 'takeSnapshot',
    arrange: running,
    ask: ({ machine }) => api('POST', `/v1/machines/${machine}/snapshots`),
    status: 201,
    entry: 'snapshot.created',
  },
  attach: {
    step: 'ensure',
    arrange: async (scene) => {
      scene.machine = await makeMachine();
      scene.volume = await makeVolume();
    },
    ask: ({ volume, machine }) => attach(volume, machine),
    status: 200,
    entry: 'volume.attached',
  },
  detach: {
    step: 'ensure',
    arrange: async (scene) => {
      scene.machine = await makeMachine();
      scene.volume = await makeVolume();
      assert.equal((await attach(scene.volume, scene.machine)).status, 200);
    },
    ask: ({ volume }) => api('POST', `/v1/volumes/${volume}/detach`),
    status: 200,
    entry: 'volume.detached',
  },
  delete_volume: {
    step: 'deleteVolume',
    arrange: async (scene) => {
      scene.machine = await makeMachine();
      scene.volume = await makeVolume();
    },
    ask: ({ volume }) => api('DELETE', `/v1/volumes/${volume}`),
    status: 204,
    entry: 'volume.deleted',
  },
  delete_snapshot: {
    step: 'deleteSnapshot',
    arrange: async (scene) => {
      scene.machine = await makeMachine();
      scene.snapshot = await makeSnapshot(scene.machine);
    },
    ask: ({ snapshot }) => api('DELETE', `/v1/snapshots/${snapshot}`),
    status: 204,
    entry: 'snapshot.deleted',
  },
  create_volume: {
    step: 'ensureVolume',
    arrange: running,
    ask: () => api('POST', '/v1/volumes', { body: { size_gb: 5 } }),
    status: 201,
    entry: 'volume.created',
  },
};

type Request = {
  /** Creates the volume or snapshot that the request needs, before the operation begins. */
  prepare?: (scene: Scene, kind: Kind) => Promise<void>;
  ask: (scene: Scene) => Promise<Answer>;
  entry?: string;
};

const withSnapshot = async (scene: Scene, kind: Kind) => {
  if (scene.snapshot === '' && kind !== 'snapshot') scene.snapshot = await makeSnapshot(scene.machine);
};
/** Creates a volume for the request, attached to the machine, unless the operation already has a volume. */
const withVolume = async (scene: Scene, kind: Kind) => {
  if (scene.volume !== '' || kind === 'create_volume') return;
  scene.volume = await makeVolume();
  if (kind !== 'create') assert.equal((await attach(scene.volume, scene.machine)).status, 200);
};

const ASKED: Record<Column, Request> = {
  start: { ask: ({ machine }) => api('POST', `/v1/machines/${machine}/start`), entry: 'machine.started' },
  stop: { ask: ({ machine }) => api('POST', `/v1/machines/${machine}/stop`), entry: 'machine.stopped' },
  destroy: {
    ask: ({ machine }) => api('DELETE', `/v1/machines/${machine}?delete_snapshots=true`),
    entry: 'machine.destroyed',
  },
  'restore the same': {
    prepare: withSnapshot,
    ask: ({ snapshot }) => api('POST', `/v1/snapshots/${snapshot}/restore`),
    entry: 'snapshot.restored',
  },
  'restore another': {
    prepare: async (scene) => {
      scene.otherSnapshot = await makeSnapshot(scene.machine);
    },
    ask: ({ otherSnapshot }) => api('POST', `/v1/snapshots/${otherSnapshot}/restore`),
    entry: 'snapshot.restored',
  },
  snapshot: { ask: ({ machine }) => api('POST', `/v1/machines/${machine}/snapshots`), entry: 'snapshot.created' },
  'attach the same': {
    prepare: withVolume,
    ask: ({ volume, machine }) => attach(volume, machine),
    entry: 'volume.attached',
  },
  'attach another': {
    prepare: async (scene) => {
      scene.otherVolume = await makeVolume();
    },
    ask: ({ otherVolume, machine }) => attach(otherVolume ?? '', machine),
    entry: 'volume.attached',
  },
  detach: {
    prepare: withVolume,
    ask: ({ volume }) => api('POST', `/v1/volumes/${volume}/detach`),
    entry: 'volume.detached',
  },
  'delete the volume': {
    prepare: withVolume,
    ask: ({ volume }) => api('DELETE', `/v1/volumes/${volume}`),
    entry: 'volume.deleted',
  },
  'delete the snapshot': {
    prepare: withSnapshot,
    ask: ({ snapshot }) => api('DELETE', `/v1/snapshots/${snapshot}`),
    entry: 'snapshot.deleted',
  },
  exec: { ask: ({ machine }) => api('POST', `/v1/machines/${machine}/execs`, { body: { command: 'sleep' } }) },
  PATCH: { ask: ({ machine }) => api('PATCH', `/v1/machines/${machine}`, { body: { name: 'renamed' } }) },
  GET: { ask: ({ machine }) => api('GET', `/v1/machines/${machine}`) },
};

type UnderWay = { first: Promise<Answer>; operation: OperationRow; hasEnded: () => boolean };

const unfinished = () =>
  db.selectFrom('operations').selectAll().where('finished_at', 'is', null).where('kind', '<>', 'expire').execute();

/** Sends the request and returns as soon as the host has received its call, which hangs. */
async function begin(step: Operation, ask: () => Promise<Answer>, fault: Fault = 'hang', times = 1): Promise<UnderWay> {
  const before = host.calls.length;
  const others = new Set((await unfinished()).map(({ id }) => id));
  host.fault(step, fault, times);
  let ended = false;
  const first = ask().finally(() => {
    ended = true;
  });
  await until(
    () => host.calls.slice(before).some(({ operation }) => operation === step) || ended,
    'it is held',
    60_000,
  );
  if (ended) assert.fail(`it ended before its host was asked: ${(await first).text}`);
  const operation = (await unfinished()).find(({ id }) => !others.has(id));
  assert(operation);
  return { first, operation, hasEnded: () => ended };
}

const countEntries = async () => {
  const rows = await db.selectFrom('activity').select('action').where('account_id', '=', accountId).execute();
  return Map.groupBy(rows, (row) => row.action as string);
};
type Counts = Awaited<ReturnType<typeof countEntries>>;
const added = (before: Counts, now: Counts, action: string): number =>
  (now.get(action)?.length ?? 0) - (before.get(action)?.length ?? 0);

const CHANGES: readonly Operation[] = [
  ...(['ensure', 'delete', 'startJob', 'ensureVolume', 'deleteVolume', 'takeSnapshot', 'deleteSnapshot'] as const),
];
const changesSince = (from: number) => host.calls.slice(from).filter(({ operation }) => CHANGES.includes(operation));

/** Removes everything that one table cell created, so that the next cell starts with an empty host. */
async function clear({ machine, volume, otherVolume }: Scene): Promise<void> {
  const answer = await api('DELETE', `/v1/machines/${machine}?delete_snapshots=true`);
  assert([200, 404].includes(answer.status), answer.text);
  for (const id of [volume, otherVolume]) if (id) await api('DELETE', `/v1/volumes/${id}`);
}

async function runCell(kind: Kind, column: Column, cell: Cell): Promise<void> {
  const row = ROWS[kind];
  const request = ASKED[column];
  const scene: Scene = { machine: '', volume: '', snapshot: '' };
  await row.arrange(scene);
  await request.prepare?.(scene, kind);
  const feed = await countEntries();
  const underWay = await begin(row.step, () => row.ask(scene));
  const { operation, first } = underWay;
  assert.equal(operation.kind, kind);
  scene.machine ||= operation.machine_id ?? '';
  scene.volume ||= operation.volume_id ?? '';
  scene.snapshot ||= operation.snapshot_id ?? '';
  const [held, rowsBefore] = [host.calls.length, await operationsOf(scene)];

  let hasAnswered = false;
  const second = request.ask(scene).finally(() => {
    hasAnswered = true;
  });
  const mustWait = cell === 'joined' || cell.startsWith('waits');
  if (mustWait) {
    await Promise.race([
      somebodyWaitsFor(operation.id),
      second.then((answer) => assert.fail(`at once: ${answer.text}`)),
    ]);
    assert(!hasAnswered && !underWay.hasEnded());
    assert.deepEqual(changesSince(held), [], 'the host is asked for nothing while it waits');
    assert.equal((await operationsOf(scene)).length, rowsBefore.length, 'no second operation was written');
  } else {
    const answer = await second;
    assert(!underWay.hasEnded(), 'the operation goes on');
    const status = cell === 'cancels' ? 200 : Number(cell.replace('beside ', ''));
    assert.equal(answer.status, status, answer.text);
  }
  host.release();
  const [firstAnswer, secondAnswer] = await Promise.all([first, second]);
  await until(
    async () => !(await operationsOf(scene)).some((one) => one.finished_at === null),
    'all has ended',
    60_000,
  );

  if (cell === 'cancels') {
    assert.deepEqual(
      [firstAnswer.status, firstAnswer.json],
      [409, { detail: 'The machine was deleted meanwhile.', code: 'conflict' }],
    );
  } else assert.equal(firstAnswer.status, row.status, firstAnswer.text);
  const now = await countEntries();
  const total = (entry: string) => added(feed, now, entry);
  if (cell === 'cancels') {
    // Destroying a machine detaches its volumes, and the feed records that. So a cancelled detach still has its entry.
    assert.equal(total(row.entry), kind === 'detach' ? 1 : 0, `${row.entry}: it was not done`);
  } else if (cell === 'joined') {
    assert.equal(secondAnswer.status, row.status, secondAnswer.text);
    assert.deepEqual(withoutTimes(secondAnswer.json), withoutTimes(firstAnswer.json), 'both get the same result');
    assert.deepEqual(changesSince(held), [], 'the host was asked once');
  } else if (cell === 'waits, noop') assert.equal(secondAnswer.status, 200, secondAnswer.text);
  else if (cell.startsWith('waits')) assert.equal(secondAnswer.status, Number(cell.slice(6)), secondAnswer.text);
  if (mustWait && cell !== 'joined') await checkOrder(scene, operation.id);

  if (cell !== 'cancels') {
    const twice = request.entry === row.entry && isDone(cell, secondAnswer) && cell !== 'joined';
    assert.equal(total(row.entry), twice ? 2 : 1, row.entry);
  }
  if (request.entry && request.entry !== row.entry) {
    // Destroying a machine detaches its volumes, and the feed records that, although the detach request itself was
    // refused.
    const isTold =
      (isDone(cell, secondAnswer) && !isNothing(kind, column, cell)) || (kind === 'destroy' && column === 'detach');
    assert.equal(total(request.entry), isTold ? 1 : 0, request.entry);
  }
  await checkAll(bed);
  await clear(scene);
}

const isDone = (cell: Cell, { status }: Answer): boolean => status < 300 && cell !== 'waits, noop';

/**
 * Returns whether the request succeeds without a change: a start of a running machine, or an attach of an attached
 * volume.
 */
const isNothing = (kind: Kind, column: Column, cell: Cell): boolean =>
  cell.startsWith('beside') && (column === 'start' || (column === 'attach the same' && kind === 'delete_snapshot'));

/** Drops the operation from an answer, since it may differ between two answers that report the same result. */
const withoutTimes = (json: Answer['json']): Answer['json'] => (json ? { ...json, operation: null } : json);

const operationsOf = ({ machine, volume, snapshot }: Scene) => {
  const id = (text: string) => (text === '' ? null : text);
  return db
    .selectFrom('operations')
    .selectAll()
    .where('kind', '<>', 'expire')
    .where((is) =>
      is.or([
        is('machine_id', '=', id(machine)),
        is('volume_id', '=', id(volume)),
        is('snapshot_id', '=', id(snapshot)),
      ]),
    )
    .execute();
};

/** Asserts that the request's operation was created only after the first operation had finished. */
async function checkOrder(scene: Scene, firstId: string): Promise<void> {
  const rows = await operationsOf(scene);
  const first = rows.find(({ id }) => id === firstId);
  if (!first) return;
  assert(first.finished_at);
  for (const { id, created_at, kind } of rows) {
    if (id === firstId || created_at < first.created_at) continue;
    assert(created_at >= first.finished_at, `the ${kind} began before the end of the ${first.kind}`);
  }
}

for (const kind of KINDS) {
  describe(`beside ${kind}`, () => {
    for (const column of COLUMNS) {
      const cell = TABLE[kind][column];
      if (cell.startsWith('-')) continue;
      it(`${kind} under way, ${column}: ${cell}`, () => runCell(kind, column, cell));
    }
  });
}

const rowOf = (id: string) => db.selectFrom('machines').selectAll().where('id', '=', id).executeTakeFirstOrThrow();
/** Returns the actions of a machine in the activity feed, oldest first. */
const actionsOf = async (machine: string): Promise<string[]> => {
  const { activity } = (await api('GET', `/v1/machines/${machine}/activity?page_size=200`)).json;
  return activity.map(({ action }: { action: string }) => action).reverse();
};
const [, second] = bed.replicas;
assert(second);

describe('a retry after a 503 of the host', () => {
  const RETRIED: Kind[] = ['start', 'stop', 'destroy', 'restore', 'attach', 'detach'];
  const AWAY: [string, 'before' | 'during'][] = [
    ['that was away when it was asked', 'before'],
    ['that went away while it was asked', 'during'],
  ];
  for (const kind of RETRIED) {
    for (const [when, moment] of AWAY) {
      // If the host never received the restore, the service undoes it without a host call, and the test would have
      // nothing to wait for.
      if (kind === 'restore' && moment === 'before') continue;
      it(`${when} waits for what the ${kind} left under way, and answers 200 with one entry`, async () => {
        const row = ROWS[kind];
        const scene: Scene = { machine: '', volume: '', snapshot: '' };
        await row.arrange(scene);
        const earlier = (await actionsOf(scene.machine)).length;
        if (moment === 'before') {
          await host.away();
          await checkUnavailable(row.ask(scene));
        } else {
          // The host carries out the call, but its answer never arrives.
          const { first } = await begin(row.step, () => row.ask(scene), 'hangAfter', Number.POSITIVE_INFINITY);
          await host.away();
          await checkUnavailable(first);
        }
        const left = (await operationsOf(scene)).filter((one) => one.finished_at === null);
        assert.deepEqual(
          left.map((one) => one.kind),
          [kind],
          'it is under way still',
        );
        host.fault(row.step, 'hang');
        const from = host.calls.length;
        await host.listen();
        await until(() => changesSince(from).length > 0, 'the service goes on with it', 60_000);
        const retried = row.ask(scene);
        await somebodyWaitsFor(left[0]?.id ?? '');
        host.heal();
        const answer = await retried;
        assert.equal(answer.status, 200, answer.text);
        await until(
          async () => !(await operationsOf(scene)).some((one) => one.finished_at === null),
          'all has ended',
          60_000,
        );
        assert.deepEqual((await actionsOf(scene.machine)).slice(earlier), [row.entry]);
        await checkAll(bed);
        await clear(scene);
      });
    }
  }

  it('that never heard of a restore restores once', async () => {
    const scene: Scene = { machine: '', volume: '', snapshot: '' };
    await ROWS.restore.arrange(scene);
    await host.away();
    await checkUnavailable(ROWS.restore.ask(scene));
    await host.listen();
    let answer: Answer | undefined;
    await until(
      async () => {
        answer = await ROWS.restore.ask(scene);
        return answer.status !== 503;
      },
      'the host is back',
      60_000,
    );
    assert.equal(answer?.status, 200, answer?.text);
    assert.deepEqual((await actionsOf(scene.machine)).slice(2), ['snapshot.restored']);
    await checkAll(bed);
    await clear(scene);
  });

  async function checkUnavailable(asking: Promise<Answer>): Promise<void> {
    const { status, json, headers } = await asking;
    assert.deepEqual([status, json.code], [503, 'host_unavailable']);
    assert(Number(headers.get('retry-after')) > 0);
  }
});

describe('a joiner on another replica', () => {
  for (const kind of ['start', 'stop', 'destroy', 'restore', 'attach', 'detach'] as const) {
    it(`gets the result of the ${kind}, which is done once`, async () => {
      const scene: Scene = { machine: '', volume: '', snapshot: '' };
      await ROWS[kind].arrange(scene);
      const feed = await countEntries();
      const { first, operation } = await begin(ROWS[kind].step, () => ROWS[kind].ask(scene));
      const held = host.calls.length;
      const joined = askOn(kind, scene);
      await somebodyWaitsFor(operation.id);
      host.release();
      const [one, other] = await Promise.all([first, joined]);
      assert.deepEqual([one.status, other.status], [200, 200], other.text);
      assert.deepEqual(withoutTimes(other.json), withoutTimes(one.json));
      assert.equal(added(feed, await countEntries(), ROWS[kind].entry), 1);
      assert.deepEqual(changesSince(held), []);
      await checkAll(bed);
      await clear(scene);
    });
  }

  it('gets the refusal that the operation ended with', async () => {
    const machine = await stopped();
    host.fault('ensure', 'hangThenFail', 1);
    const first = api('POST', `/v1/machines/${machine}/start`);
    await until(async () => (await unfinished()).length === 1, 'it is under way', 60_000);
    const [operation] = await unfinished();
    const joined = api('POST', `/v1/machines/${machine}/start`, { plane: second });
    await somebodyWaitsFor(operation?.id ?? '');
    host.release();
    const answers = await Promise.all([first, joined]);
    assert.deepEqual(
      answers.map(({ status, json }) => [status, json.code]),
      [
        [500, 'internal_error'],
        [500, 'internal_error'],
      ],
    );
    assert.equal((await rowOf(machine)).state, 'stopped');
    assert.deepEqual(
      (await actionsOf(machine)).filter((action) => action === 'machine.started'),
      [],
    );
    await checkAll(bed);
  });

  const askOn = (kind: Kind, { machine, volume, snapshot }: Scene): Promise<Answer> => {
    const options = { plane: second };
    if (kind === 'destroy') {
      return api('DELETE', `/v1/machines/${machine}?delete_snapshots=true&preserve_storage=true`, options);
    }
    if (kind === 'restore') return api('POST', `/v1/snapshots/${snapshot}/restore`, options);
    if (kind === 'detach') return api('POST', `/v1/volumes/${volume}/detach`, options);
    if (kind === 'attach') {
      return api('POST', `/v1/volumes/${volume}/attach`, { ...options, body: { machine_id: machine } });
    }
    return api('POST', `/v1/machines/${machine}/${kind}`, options);
  };
});

describe('what is told to the host', () => {
  it('is the generation of the row, after every operation', async () => {
    const machine = await makeMachine();
    const volume = await makeVolume();
    const snapshot = await makeSnapshot(machine);
    const acts: (() => Promise<Answer>)[] = [
      () => api('POST', `/v1/machines/${machine}/stop`),
      () => api('POST', `/v1/machines/${machine}/start`),
      () => attach(volume, machine),
      () => api('POST', `/v1/snapshots/${snapshot}/restore`),
      () => api('POST', `/v1/volumes/${volume}/detach`),
    ];
    for (const act of acts) {
      const answer = await act();
      assert.equal(answer.status, 200, answer.text);
      assert.equal(host.machines.get(machine)?.report.generation, (await rowOf(machine)).generation);
    }
    await clear({ machine, volume, snapshot });
  });
});

describe('requests of the same moment', () => {
  const ROUNDS = 10;

  it('attach one volume to one of two machines, and refuse the other', async () => {
    const [one, other] = [await makeMachine(), await makeMachine()];
    for (let round = 0; round < ROUNDS; round++) {
      const volume = await makeVolume();
      const answers = await Promise.all([attach(volume, one), attach(volume, other)]);
      assert.deepEqual(answers.map(({ status }) => status).sort(), [200, 409], answers.map(({ text }) => text).join());
      await api('POST', `/v1/volumes/${volume}/detach`);
    }
    await checkAll(bed);
  });

  it('attach a volume or delete it, never both and never a 500', async () => {
    const machine = await makeMachine();
    for (let round = 0; round < ROUNDS; round++) {
      const volume = await makeVolume();
      const [attached, deleted] = await Promise.all([attach(volume, machine), api('DELETE', `/v1/volumes/${volume}`)]);
      const outcome = `${attached.status},${deleted.status}`;
      assert(['200,409', '404,204'].includes(outcome), `${outcome} ${attached.text} ${deleted.text}`);
      await api('POST', `/v1/volumes/${volume}/detach`);
    }
    await checkAll(bed);
  });

  it('delete a volume once, and never answer 500', async () => {
    for (let round = 0; round < ROUNDS; round++) {
      const volume = await makeVolume();
      const feed = await countEntries();
      const answers = await Promise.all(Array.from({ length: 5 }, () => api('DELETE', `/v1/volumes/${volume}`)));
      const statuses = answers.map(({ status }) => status);
      assert(statuses.includes(204) && statuses.every((status) => status === 204 || status === 404), statuses.join());
      assert.equal(added(feed, await countEntries(), 'volume.deleted'), 1);
    }
  });

  it('restore a snapshot and delete it, one after the other', async () => {
    const machine = await makeMachine();
    for (let round = 0; round < ROUNDS; round++) {
      const snapshot = await makeSnapshot(machine);
      const [restored, deleted] = await Promise.all([
        api('POST', `/v1/snapshots/${snapshot}/restore`),
        api('DELETE', `/v1/snapshots/${snapshot}`),
      ]);
      const outcome = `${restored.status},${deleted.status}`;
      assert(['200,204', '404,204'].includes(outcome), `${outcome} ${restored.text} ${deleted.text}`);
    }
    await checkAll(bed);
  });

  it('start, stop and destroy one machine: one entry for each that was done', async () => {
    const machine = await stopped();
    const planes = [bed.plane, second];
    const answers = await Promise.all(
      Array.from({ length: 8 }, (_, index) =>
        api('POST', `/v1/machines/${machine}/start`, { plane: planes[index % 2] ?? bed.plane }),
      ),
    );
    assert(answers.every(({ status }) => status === 200));
    assert.deepEqual((await actionsOf(machine)).slice(2), ['machine.started']);
    const destroyed = await Promise.all(
      Array.from({ length: 8 }, (_, index) =>
        api('DELETE', `/v1/machines/${machine}`, { plane: planes[index % 2] ?? bed.plane }),
      ),
    );
    assert(destroyed.every(({ status }) => status === 200 || status === 404));
    assert.deepEqual((await actionsOf(machine)).slice(3), ['machine.destroyed']);
    await checkAll(bed);
  });
});

describe('a delete', () => {
  it('without delete_snapshots is a 409 while the first snapshot is being made, which goes on', async () => {
    const machine = await makeMachine();
    const { first } = await begin('takeSnapshot', () => api('POST', `/v1/machines/${machine}/snapshots`));
    const refused = await api('DELETE', `/v1/machines/${machine}`);
    assert.equal(refused.status, 409, refused.text);
    host.release();
    assert.equal((await first).status, 201);
    await checkAll(bed);
  });

  it('without delete_snapshots is a 409 while a snapshot is restored, which goes on', async () => {
    const machine = await makeMachine();
    const snapshot = await makeSnapshot(machine);
    const { first } = await begin('ensure', () => api('POST', `/v1/snapshots/${snapshot}/restore`));
    const refused = await api('DELETE', `/v1/machines/${machine}`);
    assert.equal(refused.status, 409, refused.text);
    host.release();
    assert.equal((await first).status, 200);
    await checkAll(bed);
  });

  it('that ended a start and finds no disk to keep leaves no machine that is provisioning for ever', async () => {
    const machine = await stopped();
    const { first } = await begin('ensure', () => api('POST', `/v1/machines/${machine}/start`));
    host.machines.delete(machine);
    const refused = await api('DELETE', `/v1/machines/${machine}?preserve_storage=true`);
    assert.equal(refused.status, 409, refused.text);
    host.release();
    assert.equal((await first).status, 409);
    await until(
      async () => (await rowOf(machine)).state === 'error',
      'it is in error, as one that its host lost',
      30_000,
    );
    await checkAll(bed);
    assert.equal((await api('DELETE', `/v1/machines/${machine}`)).status, 200);
  });
});
