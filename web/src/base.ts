// Base is where pages and the API of a UI are. A hub serves the pages of all clusters, each below a path of its own.
export interface Base {
  pages: string; // before the paths of pages, such as /clusters/edge-7; empty for the UI of one cluster
  api: string; // before /api/v1 and /login
  isHub: boolean; // the server is a hub
  cluster?: string; // whose UI the hub shows
}

// baseOf returns the base of an address at a server, which is a hub or not.
export function baseOf(isHub: boolean, path: string): Base {
  const cluster = isHub ? /^\/clusters\/([^/]+)(\/|$)/.exec(path)?.[1] : undefined;
  return cluster ? { pages: `/clusters/${cluster}`, api: `/fleet/v1/clusters/${cluster}/ui`, isHub, cluster } : { pages: '', api: '', isHub };
}

const isHub = typeof document !== 'undefined' && document.querySelector('meta[name="sluice-server"]')?.getAttribute('content') === 'hub';

export const base: Base = baseOf(isHub, typeof location === 'undefined' ? '/' : location.pathname);

// inside returns the path of a page without what stands before it.
export function inside(path: string, pages: string): string {
  return (path.startsWith(pages) ? path.slice(pages.length) : path) || '/';
}
