// Part is a part of a paragraph. A reason is a code such as SLU-1101.
export interface Part {
  kind: 'text' | 'code' | 'strong' | 'reason';
  text: string;
}

const marks = /`([^`]+)`|\*\*([^*]+)\*\*|\[([^\]]+)\]\([^)]*\)|\b(SLU-\d{4})\b/g;

// inline splits a paragraph of Markdown. Links to other pages are only their text, as the UI does not serve those.
export function inline(text: string): Part[] {
  const parts: Part[] = [];
  let end = 0;
  const add = (kind: Part['kind'], t?: string) => t && parts.push({ kind, text: t });
  for (const m of text.matchAll(marks)) {
    add('text', text.slice(end, m.index));
    add('code', m[1]);
    add('strong', m[2]);
    m[3] && parts.push(...codes(m[3]));
    add('reason', m[4]);
    end = m.index + m[0].length;
  }
  add('text', text.slice(end));
  return parts;
}

// codes splits a text at codes.
export function codes(text: string): Part[] {
  return text.split(/\b(SLU-\d{4})\b/).map((t, i): Part => ({ kind: i % 2 ? 'reason' : 'text', text: t })).filter((p) => p.text);
}
