// A hub shows the UI of a cluster at /clusters/NAME/, and sends requests for its API to the cluster. All other addresses
// are those of the cluster that serves the pages.
const at = /^\/clusters\/([a-z0-9][a-z0-9.-]*)(?=\/|$)/.exec(globalThis.location?.pathname ?? '');

// base is the beginning of the addresses of pages.
export const base = at?.[0] ?? '';

// server is the beginning of the addresses of the API and of the login.
export const server = at ? `/fleet/v1/clusters/${at[1]}/ui` : '';

// inBase returns an address of the browser without the base.
export function inBase(path: string): string {
  return path.slice(base.length) || '/';
}
