// cores returns 1/1000 of cores in words.
export function cores(milli: number): string {
  return milli < 1000 ? `${milli}m` : (milli / 1000).toFixed(milli < 10_000 ? 1 : 0);
}

const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];

// memory returns bytes in words.
export function memory(bytes: number): string {
  const unit = Math.min(units.length - 1, Math.floor(Math.log2(Math.max(1, bytes)) / 10));
  const n = bytes / 1024 ** unit;
  return `${n < 10 && unit > 0 ? n.toFixed(1) : Math.round(n)} ${units[unit]}`;
}

// shortImage returns an image without its registry and path, and with 8 characters of a digest.
export function shortImage(image: string): string {
  return image.replace(/^.*\//, '').replace(/(@sha256:[0-9a-f]{8})[0-9a-f]{56}$/, '$1');
}
