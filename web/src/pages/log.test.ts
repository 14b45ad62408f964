import { expect, test } from 'vitest';
import { add, Line, marked, matches, maxLines, padTime, parse, search } from './log';

test.each([
  ['{"level":"error","msg":"no route","path":"/a","n":2}', 'error', 'no route', 'path=/a n=2'],
  ['{"severity":"WARNING","message":"slow","time":"now"}', 'warn', 'slow', ''],
  ['{"level":30,"msg":"pino"}', 'info', 'pino', ''],
  ['level=info msg="hello \\"you\\"" user=ada', 'info', 'hello "you"', 'user=ada'],
  ['E1129 05:24:03.123456       1 main.go:7] boom', 'error', 'E1129 05:24:03.123456       1 main.go:7] boom', ''],
  ['2026-11-29 WARN cache is cold', 'warn', '2026-11-29 WARN cache is cold', ''],
  ['GET /errors 200', undefined, 'GET /errors 200', ''],
  ['{not json', undefined, '{not json', ''],
  ['', undefined, '', ''],
])('%s', (text, level, message, fields) => {
  const got = parse(text);
  expect([got.level, got.message, got.fields.map((f) => f.join('=')).join(' ')]).toEqual([level, message, fields]);
});

test('a search has words, phrases, and what to leave out', () => {
  const line = (text: string) => ({ text, pod: 'web-1', container: 'main' });
  const finds = (q: string, text: string) => matches(search(q), line(text));
  expect(finds('GET 500', 'GET /a 500')).toBe(true);
  expect(finds('GET -healthz', 'GET /healthz 200')).toBe(false);
  expect(finds('"get /a"', 'GET /a 500')).toBe(true);
  expect(finds('-"get /a"', 'GET /a 500')).toBe(false);
  expect(finds('web-1', 'x')).toBe(true);
  expect(finds('- ""', 'x')).toBe(true); // nothing yet
  expect(finds('', 'x')).toBe(true);
  expect(marked('a (b) c', ['(b)'])).toEqual(['a ', '(b)', ' c']);
});

test('lines are in the order of their times, and the oldest are dropped', () => {
  const line = (at: string, number: number): Line => ({ at: padTime(at), number, pod: 'p', container: 'c', text: '', message: '', fields: [] });
  const all = add([line('2026-01-01T00:00:01.5Z', 0)], [line('2026-01-01T00:00:01.25Z', 1), line('2026-01-01T00:00:01.5Z', 2)]);
  expect(all.map((l) => l.number)).toEqual([1, 0, 2]);
  expect(add(all, Array.from({ length: maxLines }, (_, i) => line('2026-01-02T00:00:00Z', i + 3)))[0]?.number).toBe(3);
  expect(padTime('2026-01-01T00:00:01Z')).toBe('2026-01-01T00:00:01.000000000Z');
});
