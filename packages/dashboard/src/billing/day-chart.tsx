// The chart of usage by day, with one stacked bar per day. It is a chunk of its own, because the chart library is
// large.
import { useEffect, useRef } from 'react';
import UPlot from 'uplot';
import 'uplot/dist/uPlot.min.css';
import styles from './billing.module.css';
import type { DaySeries } from './series.ts';

const HEIGHT_PX = 220;
const BAR_WIDTH_MAX_PX = 40;
/** CSS variables of billing.module.css, in the order of the kinds of usage. */
const COLOURS = ['--chart-1', '--chart-2', '--chart-3', '--chart-4'];

export function DayChart({ series }: { series: DaySeries }) {
  const holder = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const element = holder.current;
    if (!element) return;
    let chart = draw(element, series);
    const fit = new ResizeObserver(() => chart.setSize({ width: element.clientWidth, height: HEIGHT_PX }));
    fit.observe(element);
    // A canvas does not follow CSS variables, so the chart is drawn again when the theme changes.
    const theme = new MutationObserver(() => {
      chart.destroy();
      chart = draw(element, series);
    });
    theme.observe(document.documentElement, { attributes: true, attributeFilter: ['data-theme'] });
    return () => {
      fit.disconnect();
      theme.disconnect();
      chart.destroy();
    };
  }, [series]);
  return <div ref={holder} className={styles.chart} aria-hidden="true" />;
}

function draw(element: HTMLElement, { days, isMoney, kinds }: DaySeries): UPlot {
  const colours = getComputedStyle(element);
  const colour = (name: string) => colours.getPropertyValue(name);
  const stacked = stack(kinds.map(({ values }) => values));
  const bars = UPlot.paths.bars?.({ size: [0.7, BAR_WIDTH_MAX_PX] });
  const axis = { stroke: colour('--muted'), grid: { stroke: colour('--line'), width: 1 }, ticks: { show: false } };
  const last = Math.max(...kinds.map(({ values }) => values.findLastIndex((value) => value > 0)), 0);
  const options: UPlot.Options = {
    width: element.clientWidth,
    height: HEIGHT_PX,
    tzDate: (seconds) => UPlot.tzDate(new Date(seconds * 1000), 'Etc/UTC'),
    cursor: { drag: { x: false, y: false } },
    scales: { y: { range: (_chart, _least, most) => [0, most > 0 ? most * 1.1 : 1] } },
    axes: [
      { ...axis, grid: { show: false }, values: (_chart, ticks) => ticks.map((tick) => dayOf(tick).slice(5)) },
      { ...axis, size: 64, values: (_chart, ticks) => ticks.map((tick) => (isMoney ? `€${tick}` : `${tick}`)) },
    ],
    hooks: {
      // Without a pointer, the legend shows the last day that has usage.
      setCursor: [(chart) => (chart.cursor.idx === null ? chart.setLegend({ idx: last }) : undefined)],
    },
    series: [
      { value: (_chart, seconds) => (seconds === null ? '–' : dayOf(seconds)), label: 'Day' },
      // uPlot has no stacked bars, so each bar is a running sum. The highest is drawn first, and the others cover its
      // lower part.
      ...kinds
        .map(({ label, values }, index) => ({
          label,
          ...(bars ? { paths: bars } : {}),
          width: 0,
          points: { show: false },
          fill: colour(COLOURS[index] ?? '--muted'),
          stroke: colour(COLOURS[index] ?? '--muted'),
          value: (_chart: UPlot, _stacked: number, _series: number, at: number | null) =>
            at === null ? '–' : `${isMoney ? '€' : ''}${(values[at] ?? 0).toFixed(isMoney ? 4 : 2)}`,
        }))
        .reverse(),
    ],
  };
  const times = days.map((day) => Date.parse(day) / 1000);
  const chart = new UPlot(options, [times, ...stacked.reverse()], element);
  chart.setLegend({ idx: last });
  return chart;
}

const dayOf = (seconds: number): string => new Date(seconds * 1000).toISOString().slice(0, 10);

/** Turns the values of each row into running sums over the rows before it. */
function stack(rows: readonly number[][]): number[][] {
  const sums: number[][] = [];
  for (const row of rows) {
    const below = sums.at(-1);
    sums.push(row.map((value, index) => value + (below?.[index] ?? 0)));
  }
  return sums;
}
