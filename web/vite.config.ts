import { defineConfig } from "vite";

// Addresses are relative to the page's <base>: the service may be behind a proxy's path.
export default defineConfig({
  base: "./",
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  build: {
    outDir: "../service/sparklag_service/rest/static",
    emptyOutDir: true,
    target: "es2022",
    modulePreload: { polyfill: false },
    // What is inlined is refused by the page's Content-Security-Policy.
    assetsInlineLimit: 0,
    // Whoever has the page has the licences of what is in it.
    license: { fileName: "third_party_licenses.md" },
  },
});
