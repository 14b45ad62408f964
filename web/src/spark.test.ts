import { expect, test } from 'vitest';
import { lines } from './spark';

test('minutes that are not known are gaps', () => {
  expect(lines([1, 2, -1, 2, 1])).toEqual(['0,9 15,1', '45,1 60,9']);
  expect(lines([-1, -1, 4])).toEqual(['60,1 58,1']);
  expect(lines([-1, -1])).toEqual([]);
  expect(lines([0, 0])).toEqual(['0,17 60,17']);
});
