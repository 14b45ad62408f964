export type Theme = 'system' | 'light' | 'dark';

const key = 'sluice-theme';
export const themeChanged = 'sluice:theme';

// chosenTheme returns the theme that the person chose in this browser.
export function chosenTheme(): Theme {
  const stored = localStorage.getItem(key);
  return stored === 'light' || stored === 'dark' ? stored : 'system';
}

// applyTheme shows a theme, and keeps the choice.
export function applyTheme(theme: Theme) {
  if (theme === 'system') {
    delete document.documentElement.dataset.theme;
    localStorage.removeItem(key);
  } else {
    document.documentElement.dataset.theme = theme;
    localStorage.setItem(key, theme);
  }
  window.dispatchEvent(new Event(themeChanged));
}
