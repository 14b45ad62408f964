const size = { width: 60, height: 18 };

// lines returns the parts of a line through values, without those that are not known (-1). A single value has a part of
// two equal points, so that it is seen.
export function lines(values: number[]): string[] {
  const most = Math.max(1, ...values);
  const step = size.width / Math.max(1, values.length - 1);
  const point = (v: number, x: number) => `${+x.toFixed(1)},${+(size.height - 1 - (v / most) * (size.height - 2)).toFixed(1)}`;
  const isKnown = (i: number) => (values[i] ?? -1) >= 0;
  const parts: string[][] = [[]];
  values.forEach((v, i) => {
    if (v < 0) {
      parts.push([]);
      return;
    }
    parts[parts.length - 1]?.push(point(v, i * step));
    if (!isKnown(i - 1) && !isKnown(i + 1)) {
      parts[parts.length - 1]?.push(point(v, Math.max(0, i * step - 2)));
    }
  });
  return parts.filter((p) => p.length).map((p) => p.join(' '));
}

// Spark draws what was used in the last minutes, with the least and the most in words.
export function Spark({ of, word }: { of?: number[]; word: (n: number) => string }) {
  const known = of?.filter((v) => v >= 0) ?? [];
  if (!of || known.length < 2) {
    return null;
  }
  const text = `${word(Math.min(...known))} to ${word(Math.max(...known))} in ${known.length} of the last ${of.length} minutes`;
  return (
    <svg class="spark" width={size.width} height={size.height} role="img" aria-label={text}>
      <title>{text}</title>
      {lines(of).map((l) => (
        <polyline points={l} />
      ))}
    </svg>
  );
}
