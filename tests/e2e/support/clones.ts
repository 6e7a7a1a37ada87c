// Creates machines that are certainly clones of a template of their shape, not of a bare template. The service makes
// that template after the second create of the shape, so a test may need a third create.
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Machine, MachineCreate } from '@sandbar/contract/machine.ts';
import { MACHINE_DEFAULTS } from '@sandbar/contract/machine-states.ts';
import { vmOf } from './host.ts';
import { createMachine, destroyMachine, HOME, until } from './service.ts';

/** How long a first boot and the making of a template may take, under emulation and in parallel with other tests. */
const TEMPLATE_TIMEOUT_MS = 120_000;
const TRIES = 4;
const TEMPLATES = join(HOME, 'templates');

type Shape = { layerPaths: string[]; vcpus: number; memoryMb: number; diskGb: number; isBare?: boolean };

/**
 * Creates a machine that is a clone of its shape's template. If there is no such template, waits until there is one and
 * tries again. Throws when none of four creates made such a clone.
 */
export async function createClone(wanted: MachineCreate): Promise<Machine> {
  for (let tried = 1; ; tried++) {
    const machine = await createMachine(wanted);
    const template = templateOf(machine.id);
    if (template && !template.isBare) return machine;
    await destroyMachine(machine.id);
    if (tried === TRIES) throw new Error(`a machine of ${JSON.stringify(wanted)} is not cloned`);
    if (tried === 1) continue;
    await until('the template of its shape', () => hasTemplate(machine), TEMPLATE_TIMEOUT_MS);
  }
}

/** Creates `count` machines that are clones, at most `atOnce` of them in parallel. */
export async function createClones(count: number, atOnce: number, wanted: MachineCreate): Promise<Machine[]> {
  const first = await createClone(wanted);
  const machines = [first];
  while (machines.length < count) {
    const next = Math.min(atOnce, count - machines.length);
    machines.push(...(await Promise.all(Array.from({ length: next }, () => createClone(wanted)))));
  }
  return machines;
}

/** Whether there is the bare template for machines of the default processors and memory. */
export function hasBareTemplate(): boolean {
  const { vcpus, memory_mb } = MACHINE_DEFAULTS;
  return templateShapes().some((shape) => shape.isBare && shape.vcpus === vcpus && shape.memoryMb === memory_mb);
}

function hasTemplate({ vcpus, memory_mb, rootfs_size_gb }: Machine): boolean {
  const isLarge = rootfs_size_gb >= MACHINE_DEFAULTS.rootfs_size_gb;
  return templateShapes().some(
    (shape) =>
      !shape.isBare &&
      shape.vcpus === vcpus &&
      shape.memoryMb === memory_mb &&
      shape.diskGb >= MACHINE_DEFAULTS.rootfs_size_gb === isLarge,
  );
}

/** The shape of the template that the machine's VM was cloned from; undefined after a cold boot. */
export function templateOf(machineId: string): Shape | undefined {
  const { templateKey } = vmOf(machineId);
  return templateKey === null ? undefined : shapeOf(templateKey);
}

/** The shapes of the templates on disk. */
function templateShapes(): Shape[] {
  return readdirSync(TEMPLATES).flatMap((key) => shapeOf(key) ?? []);
}

/** The shape in a template's manifest; undefined when there is no such template. */
function shapeOf(key: string): Shape | undefined {
  const file = join(TEMPLATES, key, 'manifest.json');
  return existsSync(file) ? (JSON.parse(readFileSync(file, 'utf8')) as { shape: Shape }).shape : undefined;
}
