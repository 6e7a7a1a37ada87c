// Light or dark: what the person chose, or else what the system says. The choice is kept in this browser.
const KEY = 'sandbar.theme';
export type Theme = 'light' | 'dark';
/** `system`: no choice. */
export type ThemeChoice = Theme | 'system';

const system = matchMedia('(prefers-color-scheme: dark)');

export function themeChoice(): ThemeChoice {
  const chosen = localStorage.getItem(KEY);
  return chosen === 'light' || chosen === 'dark' ? chosen : 'system';
}

function currentTheme(): Theme {
  const chosen = themeChoice();
  if (chosen !== 'system') return chosen;
  return system.matches ? 'dark' : 'light';
}

function applyTheme(): void {
  document.documentElement.dataset.theme = currentTheme();
}

export function chooseTheme(theme: ThemeChoice): void {
  if (theme === 'system') localStorage.removeItem(KEY);
  else localStorage.setItem(KEY, theme);
  applyTheme();
}

/** Shows the page in the current theme, also when the system's theme or the choice in another tab changes. */
export function watchTheme(): void {
  applyTheme();
  system.addEventListener('change', applyTheme);
  addEventListener('storage', applyTheme);
}
