// What a line of a log says: its level, its message and its fields; and which lines a search finds.

export const levels = ['error', 'warn', 'info', 'debug'] as const;

export type Level = (typeof levels)[number];

export interface Line {
  pod: string;
  container: string;
  at: string; // with 9 digits of the second, so that times can be compared as text; empty if unknown
  text: string;
  level?: Level;
  message: string;
  fields: [string, string][]; // of JSON or logfmt
  json?: unknown;
  number: number; // by arrival
}

const names: Record<string, Level> = {
  fatal: 'error', panic: 'error', critical: 'error', crit: 'error', emerg: 'error', alert: 'error', error: 'error', err: 'error', e: 'error', f: 'error',
  warning: 'warn', warn: 'warn', w: 'warn', notice: 'info', info: 'info', i: 'info', debug: 'debug', trace: 'debug', d: 'debug',
};

const klog = /^([IWEF])\d{4} \d\d:\d\d/;
const word = /\b(fatal|panic|critical|error|err|warning|warn|notice|info|debug|trace)\b/i;
const pair = /(?<![\w.-])([A-Za-z_][\w.-]*)=("(?:[^"\\]|\\.)*"|\S*)/g;
const wordsAtStart = 80; // characters in which a level is looked for
const maxFields = 20;

const levelKeys = ['level', 'lvl', 'severity', 'loglevel', 'log.level'];
const messageKeys = ['msg', 'message', 'text', 'event'];
const timeKeys = ['ts', 'time', 'timestamp', '@timestamp'];

// levelOf returns the level of a name or a number, as bunyan and pino write it.
function levelOf(value: unknown): Level | undefined {
  if (typeof value === 'number') {
    return value >= 50 ? 'error' : value >= 40 ? 'warn' : value >= 30 ? 'info' : value >= 10 ? 'debug' : undefined;
  }
  return names[String(value).toLowerCase()];
}

// parse recognizes JSON, logfmt, klog and plain text.
export function parse(text: string): Pick<Line, 'level' | 'message' | 'fields' | 'json'> {
  const json = text.startsWith('{') ? object(text) : undefined;
  if (json) {
    return { ...split(Object.entries(json).map(([k, v]) => [k, typeof v === 'string' ? v : JSON.stringify(v)]), text, json), json };
  }
  const pairs = [...text.matchAll(pair)].map((m): [string, string] => [m[1] ?? '', unquote(m[2] ?? '')]);
  if (pairs.some(([k]) => levelKeys.includes(k)) && pairs.some(([k]) => messageKeys.includes(k))) {
    return split(pairs, text);
  }
  const found = klog.exec(text)?.[1] ?? word.exec(text.slice(0, wordsAtStart))?.[1];
  return { level: found ? names[found.toLowerCase()] : undefined, message: text, fields: [] };
}

function object(text: string): Record<string, unknown> | undefined {
  try {
    return JSON.parse(text) as Record<string, unknown>;
  } catch {
    return undefined; // it is text
  }
}

function unquote(text: string): string {
  return text.startsWith('"') ? String(object(text) ?? text.slice(1, -1)) : text;
}

function split(all: [string, string][], text: string, json?: Record<string, unknown>) {
  const key = (keys: string[]) => keys.find((k) => all.some(([name]) => name === k));
  const level = key(levelKeys);
  const message = key(messageKeys);
  const value = (name?: string) => all.find(([k]) => k === name)?.[1];
  return {
    level: levelOf(json ? json[level ?? ''] : value(level)),
    message: value(message) ?? text,
    fields: message ? all.filter(([k]) => k !== level && k !== message && !timeKeys.includes(k)).slice(0, maxFields) : [],
  };
}

// padTime gives a time 9 digits of the second.
export function padTime(at?: string): string {
  return at ? at.replace(/(?:\.(\d+))?Z$/, (_, f: string | undefined) => '.' + (f ?? '').padEnd(9, '0') + 'Z') : '';
}

export interface Search {
  has: string[];
  not: string[];
}

// search splits a query: words and "phrases" that a line must contain, and those after a minus that it must not.
export function search(query: string): Search {
  const found: Search = { has: [], not: [] };
  for (const [, minus, phrase, plain] of query.toLowerCase().matchAll(/(-?)(?:"([^"]*)"?|(\S+))/g)) {
    const text = phrase ?? plain ?? '';
    if (text && text !== '-') {
      (minus ? found.not : found.has).push(text);
    }
  }
  return found;
}

// matches reports whether a search finds a line.
export function matches(s: Search, line: Pick<Line, 'text' | 'pod' | 'container'>): boolean {
  const text = `${line.text} ${line.pod} ${line.container}`.toLowerCase();
  return s.has.every((w) => text.includes(w)) && !s.not.some((w) => text.includes(w));
}

// marked splits a text at what a search found: every second part was found.
export function marked(text: string, has: string[]): string[] {
  if (!has.length) {
    return [text];
  }
  return text.split(new RegExp(`(${has.map((w) => w.replace(/[.*+?^${}()|[\]\\]/g, '\\$&')).join('|')})`, 'gi'));
}

export const maxLines = 20_000; // that a page keeps

// add returns the lines of a page with new ones, in the order of their times. It drops the oldest above the limit.
export function add(lines: Line[], more: Line[]): Line[] {
  const last = lines[lines.length - 1];
  const all = [...lines, ...more];
  if (last && more.some((l) => l.at < last.at) || more.some((l, i) => i > 0 && l.at < (more[i - 1] as Line).at)) {
    all.sort((a, b) => (a.at < b.at ? -1 : a.at > b.at ? 1 : a.number - b.number));
  }
  return all.slice(-maxLines);
}
