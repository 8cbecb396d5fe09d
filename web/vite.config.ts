import { fileURLToPath } from "node:url";
import { defineConfig } from "vite";
import { gallery } from "./gallery.ts";

// Names without hashes: the binary embeds these files, and a change of one line should change one file.
export default defineConfig({
  base: "./",
  publicDir: false,
  build: {
    outDir: "bundle",
    emptyOutDir: true,
    target: "es2022",
    modulePreload: false,
    cssCodeSplit: false,
    reportCompressedSize: false,
    rollupOptions: {
      output: {
        entryFileNames: "app.js",
        chunkFileNames: "[name].js",
        assetFileNames: (asset) => (asset.names.some((name) => name.endsWith(".css")) ? "app.css" : "[name][extname]"),
      },
    },
  },
  worker: {
    format: "es",
    rollupOptions: { output: { entryFileNames: "worker.js" } },
  },
  plugins: [
    {
      name: "kiln-gallery",
      generateBundle() {
        const examples = gallery(fileURLToPath(new URL("../examples", import.meta.url)));
        this.emitFile({ type: "asset", fileName: "gallery.json", source: JSON.stringify(examples) });
      },
    },
  ],
});
