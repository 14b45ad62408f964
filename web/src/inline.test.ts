import { expect, test } from 'vitest';
import { codes, inline } from './inline';

test('a paragraph has code, strong words, links and codes', () => {
  expect(inline('**Sign:** see `a*b`, [SLU-1208](#slu-1208) or [pages](x.md); SLU-1001.').map((p) => `${p.kind}=${p.text}`)).toEqual([
    'strong=Sign:', 'text= see ', 'code=a*b', 'text=, ', 'reason=SLU-1208', 'text= or ', 'text=pages', 'text=; ', 'reason=SLU-1001', 'text=.',
  ]);
  expect(inline('<b>`')).toEqual([{ kind: 'text', text: '<b>`' }]);
});

test('codes in messages', () => {
  expect(codes('not found (SLU-1101)').map((p) => p.kind)).toEqual(['text', 'reason', 'text']);
  expect(codes('XSLU-11011')).toEqual([{ kind: 'text', text: 'XSLU-11011' }]);
});
