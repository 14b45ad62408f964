import { defineConfig } from 'vite';

// The UI whose data `npm run dev` shows, as `make demo` and `sluice ui` print its address.
const served = new URL(process.env.SLUICE_UI ?? 'http://127.0.0.1:8090');

// The output is committed and embedded in the Go binary, so it must not depend on the machine.
export default defineConfig({
  esbuild: { jsx: 'automatic', jsxImportSource: 'preact' },
  build: { target: 'es2022', assetsInlineLimit: 0, modulePreload: { polyfill: false } },
  server: { proxy: { '/api': { target: served.origin, changeOrigin: true }, '/login': { target: served.origin, changeOrigin: true } } },
});
