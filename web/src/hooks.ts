import { createContext } from 'preact';
import { useContext, useEffect, useRef, useState } from 'preact/hooks';
import { Change, get, Live } from './api';

export const LiveContext = createContext<Live | null>(null);

// refreshDelay is between two requests, in milliseconds: changes that come close together cause one.
const refreshDelay = 250;

export interface Loaded<T> {
  data?: T;
  error?: Error;
  reload: () => void;
}

// useData reads from the API, and again when a change concerns it. If update is given, it returns the data after changes
// without a request, or undefined if the data must be read again.
export function useData<T>(
  path: string,
  concerns: (c: Change) => boolean = () => true,
  update?: (data: T, changes: Change[]) => T | undefined,
): Loaded<T> {
  const live = useContext(LiveContext);
  const [state, setState] = useState<{ path: string; data?: T; error?: Error }>({ path });
  const test = useRef(concerns);
  test.current = concerns;
  const change = useRef(update);
  change.current = update;
  const load = useRef(() => {});
  useEffect(() => {
    const control = new AbortController();
    let timer = 0;
    let busy = false;
    let again = false;
    let last = 0;
    let current: T | undefined;
    const read = async () => {
      if (busy) {
        again = true;
        return;
      }
      busy = true;
      timer = 0;
      last = Date.now();
      try {
        const data = await get<T>(path, control.signal);
        current = data;
        setState({ path, data });
      } catch (error) {
        if (!control.signal.aborted) {
          setState((before) => ({ path, data: before.path === path ? before.data : undefined, error: error as Error }));
        }
      }
      busy = false;
      if (again && !control.signal.aborted) {
        again = false;
        later();
      }
    };
    const later = () => {
      window.clearTimeout(timer);
      timer = window.setTimeout(read, Math.max(0, last + refreshDelay - Date.now()));
    };
    load.current = () => void read();
    void read();
    const stop = live?.onChange((changes) => {
      const next = changes && current && !busy && !timer ? change.current?.(current, changes) : undefined;
      if (next) {
        current = next;
        setState({ path, data: next });
      } else if (changes === null || changes.some((c) => test.current(c))) {
        later();
      }
    });
    return () => {
      control.abort();
      window.clearTimeout(timer);
      stop?.();
    };
  }, [path, live]);
  const current = state.path === path ? state : { path };
  return { data: current.data, error: current.error, reload: () => load.current() };
}

// useNow returns the current time, renewed every few seconds, for "5m ago".
export function useNow(): number {
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    const timer = window.setInterval(() => setNow(Date.now()), 5000);
    return () => window.clearInterval(timer);
  }, []);
  return now;
}

// useTitle sets the title of the page.
export function useTitle(title: string) {
  useEffect(() => {
    document.title = `${title} · Sluice`;
  }, [title]);
}
