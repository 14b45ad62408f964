import { Detail, Version } from './api';

// offers returns whether the page offers to go back to a version of the history, and why not; nothing for what runs now.
export function offers(data: Pick<Detail, 'rollback' | 'history'>, to: Version): { why?: string } | undefined {
  const r = data.rollback;
  if (!r || to === data.history[0]) {
    return undefined;
  }
  if (r.why) {
    return { why: r.why };
  }
  const isKept = to.version ? to.version === r.release : to.name === r.revision;
  return isKept ? {} : { why: 'What it was made of is no longer stored.' };
}
