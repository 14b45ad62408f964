import { inline, Part } from './inline';
import { Link } from './router';

// Markdown shows paragraphs with code, strong words and links, as the entries of docs/troubleshooting.md have them.
export function Markdown({ text }: { text: string }) {
  return (
    <>
      {text.split(/\n{2,}/).map((p) => (
        <p>{inline(p.replace(/\n/g, ' ')).map((part) => show(part))}</p>
      ))}
    </>
  );
}

function show(p: Part) {
  switch (p.kind) {
    case 'code':
      return <code>{p.text}</code>;
    case 'strong':
      return <strong>{p.text}</strong>;
    case 'reason':
      return <Link to={'/explain?q=' + p.text}>{p.text}</Link>;
  }
  return p.text;
}
