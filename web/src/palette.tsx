import { CircleHelp, CirclePause, DoorOpen, GitCompareArrows, LifeBuoy, LucideIcon, Package, RefreshCw } from 'lucide-preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { act, ChangePage, ChangeSet, get, ImagePage, Item, Page, WorkloadImage } from './api';
import { Icon, KindIcon } from './icons';
import { objectPath, shortRevision } from './parts';
import { Command, commandOf } from './command';
import { go } from './router';
import { more, pages } from './shell';

const searchDelay = 150; // milliseconds after a key
const found = 8; // objects listed
const others = 4; // commits and images listed

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
  const [commits, setCommits] = useState<ChangeSet[]>([]);
  const [images, setImages] = useState<WorkloadImage[]>([]);
  const [at, setAt] = useState(0);
  useEffect(() => dialog.current?.showModal(), []);
  const command = commandOf(text);
  const words = command.words;
  useEffect(() => {
    setCommits([]);
    setImages([]);
    if (!words) {
      setItems([]);
      return;
    }
    const control = new AbortController();
    const timer = window.setTimeout(() => {
      const q = encodeURIComponent(words);
      const none = () => {}; // the entries that need no search stay
      get<Page>(`items?limit=${found}&q=${q}${command.kinds.map((k) => '&kind=' + k).join('')}`, control.signal).then((page) => setItems(page.items), none);
      if (!command.action) {
        get<ChangePage>(`changes?limit=${others}&q=${q}`, control.signal).then((page) => setCommits(page.changes), none);
        get<ImagePage>(`images?limit=${others}&q=${q}`, control.signal).then((page) => setImages(page.images), none);
      }
    }, searchDelay);
    return () => {
      window.clearTimeout(timer);
      control.abort();
    };
  }, [words, command.action]);
  const all = choices(text.trim(), command, items, onSaid);
  all.push(...commits.filter((c) => c.subject).map(ofCommit), ...images.map(ofImage));
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
        aria-label="Search" autoFocus maxLength={500} placeholder="An object, commit, image or reason; reconcile web, open gate release" value={text}
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
function choices(text: string, command: Command, items: Item[], onSaid: (text: string) => void): Choice[] {
  const all: Choice[] = [];
  const { action, words } = command;
  for (const i of items) {
    all.push(action ? toAct(action, i, onSaid) : { text: i.name, hint: `${i.namespace} · ${i.kind} · ${i.state}`, kind: i.kind, run: () => go(objectPath(i.id)) });
  }
  if (words && !action) {
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
    if (!action && p.name.toLowerCase().includes(like)) {
      all.push({ text: p.name, hint: `page · g ${p.key}`, icon: p.icon, run: () => go(p.to) });
    }
  }
  return all;
}

// toAct does what a command says: at once what needs no more words, else by the dialog on the page of the object.
function toAct(action: string, i: Item, onSaid: (text: string) => void): Choice {
  const verb = action[0]?.toUpperCase() + action.slice(1);
  const asks = action !== 'reconcile' && action !== 'retry' && action !== 'resume';
  return {
    text: `${verb} ${i.name}`,
    hint: `${i.namespace} · ${i.kind}`,
    icon: { open: DoorOpen, suspend: CirclePause }[action] ?? RefreshCw,
    run: () => {
      if (asks) {
        go(`${objectPath(i.id)}?ask=${action}`);
        return;
      }
      act(i.id, action, {}).then(
        () => onSaid(`${verb} of ${i.id} is requested.`),
        (e: Error) => onSaid(`${i.id}: ${e.message}`),
      );
    },
  };
}

function ofCommit(c: ChangeSet): Choice {
  return { text: c.subject ?? '', hint: `commit · ${shortRevision(c.revision)}`, icon: GitCompareArrows, run: () => go('/changes?q=' + encodeURIComponent(c.revision)) };
}

function ofImage(i: WorkloadImage): Choice {
  return { text: i.image + ':' + i.runs, hint: `image · ${i.workload}`, icon: Package, run: () => go('/images?q=' + encodeURIComponent(i.image)) };
}
