import { expect, test } from 'vitest';
import { Version } from './api';
import { offers } from './offers';

const version = (name: string, v?: number): Version => ({ name, at: '', status: '', version: v });

test('only what is stored is offered', () => {
  const history = [version('main@sha1:3'), version('main@sha1:2'), version('main@sha1:1')] as const;
  const data = { history: [...history], rollback: { revision: 'main@sha1:2', from: 'main@sha1:3' } };
  expect(offers(data, history[0])).toBeUndefined();
  expect(offers(data, history[1])).toEqual({});
  expect(offers(data, history[2])?.why).toContain('no longer stored');
  expect(offers({ ...data, rollback: { ...data.rollback, why: 'no gate' } }, history[1])?.why).toBe('no gate');
  expect(offers({ history: data.history }, history[1])).toBeUndefined();
});

test('a release is offered by its version, not by that of its chart', () => {
  const history = [version('app 1.0.0', 3), version('app 1.0.0', 2), version('app 1.0.0', 1)] as const;
  const data = { history: [...history], rollback: { revision: '1.0.0', release: 2 } };
  expect(offers(data, history[1])).toEqual({});
  expect(offers(data, history[2])?.why).toBeTruthy();
});
