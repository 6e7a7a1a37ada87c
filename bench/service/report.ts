// Renders the results page: the computer, the settings of the run, and a table of all figures.
import type { Isolation } from '@sandbar/contract/machine-states.ts';
import {
  type Bound,
  type Figure,
  ratioTo,
  roundUp,
  type Statistic,
  statisticOf,
  type Verdict,
  verdictOf,
} from './figures.ts';

export type Results = {
  /** How machines were isolated. Undefined until the service has said so. */
  isolation: Isolation | undefined;
  /** Lines that describe the computer and the run. */
  facts: string[];
  figures: Figure[];
  /** Sections that failed, and what the service left on the computer. */
  problems: string[];
  /** Sentences for the reader, printed under the table. */
  notes: string[];
};

const HEAD = ['n', 'median', 'p95', 'max', '÷ gVisor', '÷ restore', 'bound', 'met'];

/** How a table names the accelerator of its figures. */
const ACCELERATOR_NAMES: Record<Isolation, string> = { kvm: 'on KVM', emulated: 'emulated' };

/** Returns the results page in Markdown. */
export function renderResults({ isolation, facts, figures, problems, notes }: Results): string {
  const rows = figures.map(rowOf);
  const where = isolation === undefined ? 'on an unknown accelerator' : ACCELERATOR_NAMES[isolation];
  const lines = [
    `# Results of \`npm run bench\`, ${where}`,
    '',
    'Written by the run; [README.md](README.md) says what is measured and how. Times in milliseconds, memory in MB (2^20',
    'bytes), CPU in percent of one core. Values and ratios are rounded up; bounds are compared with the exact ones.',
    '',
    ...facts.map((fact) => `- ${fact}`),
    '',
    row([`what, ${where}`, ...HEAD]),
    row(['---', ...HEAD.map((name) => (name === 'bound' || name === 'met' ? '---' : '---:'))]),
    ...rows.map(row),
    ...(problems.length === 0 ? [] : ['', '**Problems:**', '', ...problems.map((problem) => `- ${problem}`)]),
    ...(notes.length === 0 ? [] : ['', ...notes.map((note) => `- ${note}`)]),
  ];
  return `${lines.join('\n')}\n`;
}

/** Returns one line about a figure, for the terminal during the run. */
export function renderFigure(figure: Figure): string {
  const [what, n, median, p95, max, gvisor, restore, bound, met] = rowOf(figure);
  if (figure.unit === '') return `  ${what}: ${median}${bound === '' ? '' : `  [${bound}: ${met}]`}`;
  const ratios = [gvisor === '—' ? '' : `; ${gvisor} gVisor starts`, restore === '—' ? '' : `; ${restore} restores`];
  const verdict = bound === '' ? '' : `  [${bound}: ${met}]`;
  return `  ${what}: median ${median} ${figure.unit} (p95 ${p95}, max ${max}, n ${n})${ratios.join('')}${verdict}`;
}

function rowOf(figure: Figure): string[] {
  const { what, unit, values, bounds = [] } = figure;
  const show = (statistic: Statistic) => roundUp(statisticOf(values, statistic), digitsOf(unit));
  const verdicts = bounds.map((bound) => [bound, verdictOf(figure, bound)] as const);
  if (unit === '') {
    const count = String(statisticOf(values, 'max'));
    const met = verdicts.every(([, verdict]) => verdict === 'met') ? 'yes' : '**no**';
    const [bound] = bounds;
    return [
      what,
      '',
      count,
      '',
      '',
      '',
      '',
      bound === undefined ? '' : `≤ ${bound.atMost}`,
      bound === undefined ? '' : met,
    ];
  }
  return [
    `${what}${unit === 'ms' ? '' : `, ${unit}`}`,
    String(values.length),
    show('median'),
    show('p95'),
    show('max'),
    roundUp(ratioTo(figure, 'gvisor'), 2),
    roundUp(ratioTo(figure, 'restore'), 2),
    bounds.map(boundText).join('; '),
    metText(verdicts),
  ];
}

function digitsOf(unit: Figure['unit']): number {
  return unit === '%' ? 2 : 1;
}

function boundText({ of, atMost, in: reference }: Bound): string {
  return `${of} ≤ ${atMost}${reference === undefined ? '' : ` ${reference}`}`;
}

/** `yes` when all bounds are met, else the names of the statistics that missed a bound or cannot be compared. */
function metText(verdicts: readonly (readonly [Bound, Verdict])[]): string {
  if (verdicts.length === 0) return '';
  if (verdicts.every(([, verdict]) => verdict === 'met')) return 'yes';
  const named = (wanted: Verdict) => verdicts.filter(([, verdict]) => verdict === wanted).map(([{ of }]) => of);
  const [missed, unknown] = [named('missed'), named('unknown')];
  return [
    ...(missed.length > 0 ? [`**no** (${missed.join(', ')})`] : []),
    ...(unknown.length > 0 ? [`unknown (${unknown.join(', ')})`] : []),
  ].join('; ');
}

function row(cells: readonly string[]): string {
  return `| ${cells.join(' | ')} |`;
}
