import { expect, test } from 'vitest';
import { commandOf } from './command';

test('a text is a command only with an object', () => {
  expect(commandOf('reconcile web')).toEqual({ action: 'reconcile', words: 'web', kinds: [] });
  expect(commandOf('  Open gate release ')).toEqual({ action: 'open', words: 'release', kinds: ['Gate'] });
  expect(commandOf('approve shop release')).toEqual({ action: 'approve', words: 'shop release', kinds: ['Gate'] });
  expect(commandOf('open gate')).toEqual({ words: 'open gate', kinds: [] });
  expect(commandOf('open')).toEqual({ words: 'open', kinds: [] });
  expect(commandOf('suspend gate release')).toEqual({ words: 'suspend gate release', kinds: [] });
  expect(commandOf('opening hours')).toEqual({ words: 'opening hours', kinds: [] });
});
