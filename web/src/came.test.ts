import { expect, test } from 'vitest';
import { Gate, Item, State } from './api';
import { came } from './came';

const item = (state: State, revision: string, pending = ''): Item => ({ id: 'Kustomization/a/b', kind: 'Kustomization', namespace: 'a', name: 'b', state, revision, pending, message: 'm' });
const gate = (approved: number, required: number): Gate => ({ open: false, count: 1, required, approved });

test('what came of a decision', () => {
  const word = (i: Item, waits: boolean, g?: Gate) => came(i, 'v2', waits, g).word;
  expect(word(item('waiting', 'v1', 'v2'), true, gate(1, 2))).toBe('1 of 2');
  expect(word(item('waiting', 'v1', 'v2'), true, { ...gate(2, 0), rules: [{ outcome: 'approvals', required: 3 }] })).toBe('2 of 3');
  expect(word(item('waiting', 'v1', 'v2'), true, gate(0, 0))).toBe('waits');
  expect(word(item('progressing', 'v1'), false)).toBe('let through');
  expect(word(item('failed', 'v1'), false)).toBe('failed');
  expect(word(item('progressing', 'v2'), false)).toBe('applied, health is checked');
  expect(word(item('ready', 'v2'), false)).toBe('applied');
});
