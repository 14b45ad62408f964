import { expect, test } from 'vitest';
import { cores, memory, shortImage } from './units';

test('numbers of cores and bytes', () => {
  expect([3, 250, 1000, 1250, 12_400].map(cores)).toEqual(['3m', '250m', '1.0', '1.3', '12']);
  expect([0, 512, 1536, 64 << 20, 5 * 2 ** 30, 2 ** 60].map(memory)).toEqual(['0 B', '512 B', '1.5 KiB', '64 MiB', '5.0 GiB', '1048576 TiB']);
});

test('images', () => {
  expect(shortImage('registry.example/team/web:1.2@sha256:' + 'ab'.repeat(32))).toBe('web:1.2@sha256:abababab');
  expect(shortImage('web')).toBe('web');
});
