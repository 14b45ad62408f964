// Command is what a text in the search asks for: an action and words for its object, or only words.
export interface Command {
  action?: string;
  words: string;
  kinds: string[]; // of objects that the action is for; all if it is empty
}

const verbs = /^(reconcile|retry|suspend|resume|open|close|approve|override)(?:\s+(gate))?(?:\s+(.*))?$/i;
const ofGates = ['open', 'close', 'approve', 'override'];

// commandOf reads a text such as "reconcile web" or "open gate release".
export function commandOf(text: string): Command {
  const [, verb = '', gate, words = ''] = verbs.exec(text.trim()) ?? [];
  const action = verb.toLowerCase();
  const isOfGate = ofGates.includes(action);
  if (!words.trim() || (gate && !isOfGate)) {
    return { words: text.trim(), kinds: [] };
  }
  return { action, words: words.trim(), kinds: isOfGate ? ['Gate'] : [] };
}
