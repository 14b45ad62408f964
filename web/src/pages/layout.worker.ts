import { place, Shape } from './layout';

// This file runs as a worker: thousands of nodes take seconds, in which the page must go on.
self.onmessage = (e: MessageEvent<{ number: number; shape: Shape }>) => {
  self.postMessage({ number: e.data.number, layout: place(e.data.shape) });
};
