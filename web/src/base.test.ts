import { expect, test } from 'vitest';
import { baseOf, inside } from './base';

test('a hub has the pages and the API of each cluster below a path', () => {
  expect(baseOf(true, '/clusters/edge-7/object/Gate/shop/release')).toMatchObject({ pages: '/clusters/edge-7', api: '/fleet/v1/clusters/edge-7/ui', cluster: 'edge-7' });
  expect(baseOf(true, '/clusters/edge-7')).toMatchObject({ cluster: 'edge-7' });
  expect(baseOf(true, '/clusters/').cluster).toBeUndefined();
  expect(baseOf(true, '/gates')).toMatchObject({ pages: '', api: '' });
  expect(baseOf(false, '/clusters/edge-7')).toMatchObject({ pages: '', api: '', isHub: false });
});

test('paths of pages are read without the base', () => {
  expect(inside('/clusters/edge-7/gates', '/clusters/edge-7')).toBe('/gates');
  expect(inside('/clusters/edge-7', '/clusters/edge-7')).toBe('/');
  expect(inside('/gates', '')).toBe('/gates');
});
