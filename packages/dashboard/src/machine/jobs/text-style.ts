// The text style that SGR escape sequences select (ECMA-48: ESC [ … m), as names of CSS classes. Colours beyond the 16
// named ones become the nearest named one, because those are chosen to be readable in both themes.

/** Colours are 0 to 15, as in a terminal: eight normal ones and eight bright ones. */
export type TextStyle = {
  readonly fg?: number | undefined;
  readonly bg?: number | undefined;
  readonly bold?: boolean | undefined;
  readonly dim?: boolean | undefined;
  readonly italic?: boolean | undefined;
  readonly underline?: boolean | undefined;
  readonly strike?: boolean | undefined;
  readonly inverse?: boolean | undefined;
};

export const PLAIN: TextStyle = {};

const SWITCHES: Record<number, TextStyle> = {
  1: { bold: true },
  2: { dim: true },
  3: { italic: true },
  4: { underline: true },
  7: { inverse: true },
  9: { strike: true },
  21: { underline: true },
  22: { bold: undefined, dim: undefined },
  23: { italic: undefined },
  24: { underline: undefined },
  27: { inverse: undefined },
  29: { strike: undefined },
  39: { fg: undefined },
  49: { bg: undefined },
};

/** Applies the parameters of one SGR sequence, such as `1;31`. Unknown parameters change nothing. */
export function applySgr(style: TextStyle, parameters: string): TextStyle {
  const codes = parameters.split(/[;:]/).map(Number);
  let next = style;
  for (let at = 0; at < codes.length; at++) {
    const code = codes[at] ?? 0;
    if (code === 0) next = PLAIN;
    else if (code === 38 || code === 48) {
      const { color, length } = readColor(codes.slice(at + 1));
      if (color !== undefined) next = { ...next, [code === 38 ? 'fg' : 'bg']: color };
      at += length;
    } else next = { ...next, ...(SWITCHES[code] ?? namedColor(code)) };
  }
  return next;
}

function namedColor(code: number): TextStyle {
  if (code >= 30 && code <= 37) return { fg: code - 30 };
  if (code >= 40 && code <= 47) return { bg: code - 40 };
  if (code >= 90 && code <= 97) return { fg: code - 82 };
  if (code >= 100 && code <= 107) return { bg: code - 92 };
  return PLAIN;
}

/** Reads `5;N` (one of 256) or `2;R;G;B`. `length`: how many parameters were read. */
function readColor([kind, a = 0, b = 0, c = 0]: number[]): { color: number | undefined; length: number } {
  if (kind === 2) return { color: nearest(a, b, c), length: 4 };
  if (kind !== 5) return { color: undefined, length: 0 };
  if (a < 16) return { color: a, length: 2 };
  if (a >= 232) {
    const grey = (a - 232) * 10 + 8;
    return { color: nearest(grey, grey, grey), length: 2 };
  }
  const level = (step: number) => (step === 0 ? 0 : step * 40 + 55);
  const cube = a - 16;
  return {
    color: nearest(level(Math.floor(cube / 36)), level(Math.floor(cube / 6) % 6), level(cube % 6)),
    length: 2,
  };
}

/**
 * The nearest of the named colours: the one with the same dominant components, and its bright variant when the
 * strongest component is high.
 */
function nearest(red: number, green: number, blue: number): number {
  const most = Math.max(red, green, blue);
  const least = Math.min(red, green, blue);
  if (most - least < 32) return most < 48 ? 0 : most < 144 ? 8 : most < 216 ? 7 : 15;
  const isStrong = (part: number) => part - least > (most - least) / 2;
  const hue = (isStrong(red) ? 1 : 0) + (isStrong(green) ? 2 : 0) + (isStrong(blue) ? 4 : 0);
  return most > 192 ? hue + 8 : hue;
}

const FLAGS = ['bold', 'dim', 'italic', 'underline', 'strike', 'inverse'] as const;

/** The names of the classes of a style; an empty list for plain text. */
export function classNames(style: TextStyle): string[] {
  const names: string[] = FLAGS.filter((flag) => style[flag] === true);
  if (style.fg !== undefined) names.push(`fg${style.fg}`);
  if (style.bg !== undefined) names.push(`bg${style.bg}`);
  return names;
}
