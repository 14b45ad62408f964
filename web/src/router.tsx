import { ComponentChildren, JSX } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { base, inBase } from './base';

const changed = 'sluice:navigate';

// go shows another page without loading the document again.
export function go(to: string, replace = false) {
  if (replace) {
    history.replaceState(null, '', base + to);
  } else {
    history.pushState(null, '', base + to);
  }
  window.dispatchEvent(new Event(changed));
}

export interface Place {
  path: string;
  query: URLSearchParams;
}

// usePlace returns the current address.
export function usePlace(): Place {
  const read = () => ({ path: inBase(location.pathname), query: new URLSearchParams(location.search) });
  const [place, setPlace] = useState(read);
  useEffect(() => {
    const update = () => setPlace(read());
    window.addEventListener('popstate', update);
    window.addEventListener(changed, update);
    return () => {
      window.removeEventListener('popstate', update);
      window.removeEventListener(changed, update);
    };
  }, []);
  return place;
}

// setQuery changes parameters of the address; an empty value removes one.
export function setQuery(place: Place, values: Record<string, string>) {
  const query = new URLSearchParams(place.query);
  for (const [key, value] of Object.entries(values)) {
    if (value) {
      query.set(key, value);
    } else {
      query.delete(key);
    }
  }
  const text = query.toString();
  go(place.path + (text ? '?' + text : ''), true);
}

type LinkProps = { to: string; children: ComponentChildren } & Omit<JSX.HTMLAttributes<HTMLAnchorElement>, 'href'>;

// Link is a link to a page of the UI.
export function Link({ to, children, ...rest }: LinkProps) {
  const onClick = (e: MouseEvent) => {
    if (e.button !== 0 || e.metaKey || e.ctrlKey || e.shiftKey || e.altKey) {
      return;
    }
    e.preventDefault();
    go(to);
    window.scrollTo(0, 0);
  };
  return (
    <a {...rest} href={base + to} onClick={onClick}>
      {children}
    </a>
  );
}
