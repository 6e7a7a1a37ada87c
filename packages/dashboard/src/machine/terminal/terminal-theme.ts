// The colours and the font of terminals, from the tokens of the page's theme.
import type { ITheme } from '@xterm/xterm';

/** The 16 colours of terminals. The rest of their palette is the same everywhere. */
const COLORS = {
  red: '--bad',
  green: '--good',
  yellow: '--wait',
  blue: '--focus',
  magenta: '--terminal-magenta',
  cyan: '--accent',
  black: '--terminal-black',
  white: '--terminal-white',
} as const;

export function readTheme(element: Element): ITheme {
  const style = getComputedStyle(element);
  const token = (name: string) => style.getPropertyValue(name).trim();
  const base = Object.fromEntries(Object.entries(COLORS).map(([name, from]) => [name, token(from)]));
  const bright = Object.fromEntries(
    Object.entries(COLORS).map(([name, from]) => [`bright${name[0]?.toUpperCase()}${name.slice(1)}`, token(from)]),
  );
  return {
    ...base,
    ...bright,
    brightBlack: token('--muted'),
    brightWhite: token('--text'),
    foreground: token('--text'),
    background: token('--surface'),
    cursor: token('--accent'),
    cursorAccent: token('--accent-text'),
    selectionBackground: `${token('--focus')}55`,
    scrollbarSliderBackground: `${token('--muted')}55`,
    scrollbarSliderHoverBackground: `${token('--muted')}88`,
    scrollbarSliderActiveBackground: `${token('--muted')}bb`,
  };
}

export const readFont = (element: Element): string => getComputedStyle(element).getPropertyValue('--mono').trim();

/** Calls `listener` when the theme of the page changes. Returns a function that stops this. */
export function onThemeChange(listener: () => void): () => void {
  const observer = new MutationObserver(listener);
  observer.observe(document.documentElement, { attributeFilter: ['data-theme'] });
  return () => observer.disconnect();
}
