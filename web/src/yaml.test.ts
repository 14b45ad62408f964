import { expect, test } from 'vitest';
import { partsOf } from './yaml';

const looks = (line: string) => partsOf(line).map((p) => (p.look ? `<${p.look}>${p.text}` : p.text)).join('|');

test('keys, plain values and comments are told apart', () => {
  expect(looks('apiVersion: apps/v1')).toBe('<key>apiVersion|:| apps/v1');
  expect(looks('  replicas: 3')).toBe('  |<key>replicas|:|<value> 3');
  expect(looks('  - name: web')).toBe('  - |<key>name|:| web');
  expect(looks('# a comment: x')).toBe('<comment># a comment: x');
  expect(looks('    "a: b": true')).toBe('    |<key>"a: b"|:|<value> true');
  expect(looks('  - https://example.com')).toBe('  - https://example.com');
});

test('no text is lost', () => {
  for (const line of ['a: "b: c"', "x: 'y: z'", '      deep text: with colon', '', '- - a: b', 'key:']) {
    expect(partsOf(line).map((p) => p.text).join('')).toBe(line);
  }
});
