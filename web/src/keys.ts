import { useEffect } from 'preact/hooks';
import { go, scoped } from './router';
import { more, pages } from './shell';

const chordTime = 1000; // milliseconds between g and the key of a page

// isTyping reports whether keys belong to a field of a form, or to a dialog.
function isTyping(e: KeyboardEvent): boolean {
  const at = e.target as HTMLElement;
  return !!at.closest('input, select, textarea, dialog');
}

// moveRow moves the focus to the next or previous row of a list.
function moveRow(step: number) {
  const rows = [...document.querySelectorAll<HTMLElement>('main [data-row]')];
  const at = rows.indexOf(document.activeElement as HTMLElement);
  rows[Math.max(0, Math.min(rows.length - 1, at < 0 ? 0 : at + step))]?.focus();
}

// useKeys listens to the keys of the UI.
export function useKeys(onFind: () => void, onHelp: () => void) {
  useEffect(() => {
    let chord = 0;
    const onKey = (e: KeyboardEvent) => {
      if ((e.metaKey || e.ctrlKey) && e.key.toLowerCase() === 'k') {
        e.preventDefault();
        onFind();
        return;
      }
      if (e.metaKey || e.ctrlKey || e.altKey || isTyping(e)) {
        return;
      }
      const page = Date.now() - chord < chordTime ? [...pages, ...more].find((p) => p.key === e.key) : undefined;
      chord = e.key === 'g' && !page ? Date.now() : 0;
      if (page) {
        go(scoped(page.to));
      } else if (e.key === '/') {
        e.preventDefault();
        onFind();
      } else if (e.key === '?') {
        onHelp();
      } else if (e.key === 'j' || e.key === 'k') {
        moveRow(e.key === 'j' ? 1 : -1);
      }
    };
    window.addEventListener('keydown', onKey);
    return () => window.removeEventListener('keydown', onKey);
  }, []);
}
