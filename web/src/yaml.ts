// Part is a piece of a line of YAML, with its look.
export interface Part {
  text: string;
  look?: 'key' | 'value' | 'comment';
}

const field = /^(\s*(?:- )*)("[^"]*"|[^\s"'#:][^:]*)(:)(?=\s|$)(.*)$/;

// partsOf divides a line of YAML, as Kubernetes writes it, into what is highlighted.
export function partsOf(line: string): Part[] {
  if (/^\s*#/.test(line)) {
    return [{ text: line, look: 'comment' }];
  }
  const m = field.exec(line);
  if (!m) {
    return [{ text: line }];
  }
  const [, indent = '', key = '', colon = '', rest = ''] = m;
  const parts: Part[] = [{ text: indent }, { text: key, look: 'key' }, { text: colon }];
  if (rest) {
    parts.push(/^\s+(\d+(\.\d+)?|true|false|null|\[\]|\{\})$/.test(rest) ? { text: rest, look: 'value' } : { text: rest });
  }
  return parts.filter((p) => p.text);
}
