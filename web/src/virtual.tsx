import {
  elementScroll, observeElementOffset, observeElementRect, observeWindowOffset, observeWindowRect, Virtualizer, VirtualizerOptions, windowScroll,
} from '@tanstack/virtual-core';
import { useLayoutEffect, useReducer, useState } from 'preact/hooks';

function useVirtualizer<S extends Element | Window, R extends Element>(options: Omit<VirtualizerOptions<S, R>, 'onChange'>): Virtualizer<S, R> {
  const [, draw] = useReducer((n: number) => n + 1, 0);
  const full: VirtualizerOptions<S, R> = { ...options, onChange: () => draw(0) };
  const [rows] = useState(() => new Virtualizer<S, R>(full));
  rows.setOptions(full);
  useLayoutEffect(() => rows._didMount(), []);
  useLayoutEffect(() => rows._willUpdate());
  return rows;
}

const overscan = 12; // rows beyond those in sight

// useRows returns which of many rows are in sight of a box that scrolls.
export function useRows(count: number, size: number, box: () => HTMLElement | null, key: (i: number) => number): Virtualizer<HTMLElement, HTMLElement> {
  return useVirtualizer<HTMLElement, HTMLElement>({
    count, overscan, getItemKey: key, estimateSize: () => size, getScrollElement: box,
    scrollToFn: elementScroll, observeElementRect, observeElementOffset,
  });
}

// useWindowRows returns which of many rows are in sight of the window. above is the height of what stands above them.
export function useWindowRows(count: number, size: number, above: number): Virtualizer<Window, HTMLElement> {
  return useVirtualizer<Window, HTMLElement>({
    count, overscan, scrollMargin: above, estimateSize: () => size, getScrollElement: () => window,
    scrollToFn: windowScroll, observeElementRect: observeWindowRect, observeElementOffset: observeWindowOffset,
    initialOffset: () => window.scrollY,
  });
}
