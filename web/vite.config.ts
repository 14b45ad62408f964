import { defineConfig } from 'vite';

// The output is committed and embedded in the Go binary, so it must not depend on the machine.
export default defineConfig({
  esbuild: { jsx: 'automatic', jsxImportSource: 'preact' },
  build: { target: 'es2022', assetsInlineLimit: 0, modulePreload: { polyfill: false } },
});
