import { CircleHelp, GitCompareArrows, LifeBuoy, LucideIcon, RefreshCw } from 'lucide-preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { act, get, Item, Page } from './api';
import { Icon, KindIcon } from './icons';
import { objectPath } from './parts';
import { go } from './router';
import { more, pages } from './shell';

const searchDelay = 150; // milliseconds after a key
const found = 8; // objects listed

interface Choice {
  text: string;
  hint: string;
  icon?: LucideIcon;
  kind?: string;
  run: () => void;
}

// Palette is the search: it finds objects and pages, asks why something is not live, and reconciles.
export function Palette({ onClose, onSaid }: { onClose: () => void; onSaid: (text: string) => void }) {
  const dialog = useRef<HTMLDialogElement>(null);
  const [text, setText] = useState('');
  const [items, setItems] = useState<Item[]>([]);
  const [at, setAt] = useState(0);
  useEffect(() => dialog.current?.showModal(), []);
  const words = text.trim().replace(/^reconcile\s+/i, '');
  useEffect(() => {
    if (!words) {
      setItems([]);
      return;
    }
    const control = new AbortController();
    const timer = window.setTimeout(() => {
      get<Page>(`items?limit=${found}&q=${encodeURIComponent(words)}`, control.signal).then(
        (page) => setItems(page.items),
        () => {}, // the entries that need no search stay
      );
    }, searchDelay);
    return () => {
      window.clearTimeout(timer);
      control.abort();
    };
  }, [words]);
  const all = choices(text.trim(), words, items, onSaid);
  const chosen = Math.min(at, all.length - 1);
  const run = (c?: Choice) => {
    onClose();
    c?.run();
  };
  const onKey = (e: KeyboardEvent) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[e.key];
    if (step) {
      e.preventDefault();
      setAt((chosen + step + all.length) % all.length);
    } else if (e.key === 'Enter') {
      e.preventDefault();
      run(all[chosen]);
    }
  };
  return (
    <dialog ref={dialog} class="palette" aria-label="Search and commands" onClose={onClose}
      onClick={(e) => e.target === dialog.current && onClose()}>
      <input role="combobox" aria-expanded="true" aria-controls="palette-list" aria-activedescendant={`choice-${chosen}`}
        aria-label="Search" autoFocus maxLength={500} placeholder="An object, commit, image or reason; reconcile web" value={text}
        onInput={(e) => {
          setText(e.currentTarget.value);
          setAt(0);
        }} onKeyDown={onKey} />
      <ul role="listbox" id="palette-list" aria-label="Results">
        {all.map((c, i) => (
          <li role="option" id={`choice-${i}`} aria-selected={i === chosen} onClick={() => run(c)} onPointerMove={() => setAt(i)}>
            {c.icon ? <Icon of={c.icon} /> : <KindIcon kind={c.kind ?? ''} />}
            <span>{c.text}</span>
            <span class="quiet">{c.hint}</span>
          </li>
        ))}
      </ul>
    </dialog>
  );
}

// choices returns what a text offers, the most likely first.
function choices(text: string, words: string, items: Item[], onSaid: (text: string) => void): Choice[] {
  const all: Choice[] = [];
  const reconciles = words !== text; // "reconcile web"
  for (const i of items) {
    all.push(reconciles ? reconcile(i, onSaid) : { text: i.name, hint: `${i.namespace} · ${i.kind} · ${i.state}`, kind: i.kind, run: () => go(objectPath(i.id)) });
  }
  if (words && !reconciles) {
    all.push(
      { text: `Why is ${words} not live?`, hint: 'ask', icon: CircleHelp, run: () => go('/why?q=' + encodeURIComponent(words)) },
      { text: `Changes with ${words}`, hint: 'commits', icon: GitCompareArrows, run: () => go('/changes?q=' + encodeURIComponent(words)) },
    );
  }
  const code = /^slu-?\d{4}$/i.test(text) ? 'SLU-' + text.slice(-4) : '';
  if (code) {
    all.unshift({ text: `Explain ${code}`, hint: 'what it means, and what to do', icon: LifeBuoy, run: () => go('/explain?q=' + code) });
  }
  const like = text.toLowerCase();
  for (const p of [...pages, ...more]) {
    if (!reconciles && p.name.toLowerCase().includes(like)) {
      all.push({ text: p.name, hint: `page · g ${p.key}`, icon: p.icon, run: () => go(p.to) });
    }
  }
  return all;
}

function reconcile(i: Item, onSaid: (text: string) => void): Choice {
  return {
    text: `Reconcile ${i.name}`,
    hint: `${i.namespace} · ${i.kind}`,
    icon: RefreshCw,
    run: () => {
      act(i.id, 'reconcile', {}).then(
        () => onSaid(`A reconcile of ${i.id} is requested.`),
        (e: Error) => onSaid(`${i.id}: ${e.message}`),
      );
    },
  };
}
