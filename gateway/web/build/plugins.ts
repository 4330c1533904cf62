import { readFileSync, readdirSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { brotliCompressSync, constants, gzipSync } from "node:zlib";
import type { Plugin } from "vite";

const COMPRESSIBLE = /\.(html|js|css|svg|json)$/;
const SMALLEST = 512;

/** Writes a .br and a .gz beside every text asset, so that the server compresses nothing. */
export function precompress(): Plugin {
  let dir = "";
  return {
    name: "precompress",
    apply: "build",
    configResolved(config) {
      dir = config.build.outDir;
    },
    closeBundle() {
      for (const entry of readdirSync(dir, { recursive: true, encoding: "utf8" })) {
        const path = join(dir, entry);
        if (!COMPRESSIBLE.test(path) || statSync(path).size < SMALLEST) continue;
        const body = readFileSync(path);
        const params = { [constants.BROTLI_PARAM_QUALITY]: constants.BROTLI_MAX_QUALITY };
        writeFileSync(`${path}.br`, brotliCompressSync(body, { params }));
        writeFileSync(`${path}.gz`, gzipSync(body, { level: 9 }));
      }
    },
  };
}

/**
 * Puts a small script into <head> as a hashed, blocking asset. The page's policy forbids inline
 * scripts, and a module would run after the first paint: the theme would flash.
 */
export function blockingScript(source: string, name: string): Plugin {
  let serving = false;
  return {
    name: "blocking-script",
    configResolved(config) {
      serving = config.command === "serve";
    },
    buildStart() {
      if (serving) return;
      this.emitFile({ type: "asset", name, source: readFileSync(source, "utf8") });
    },
    transformIndexHtml: {
      order: "post",
      handler(_html, context) {
        const built = Object.values(context.bundle ?? {}).find(
          (file) => file.type === "asset" && file.names.includes(name),
        );
        const src = built ? `/${built.fileName}` : `/${source}`;
        return [{ tag: "script", attrs: { src }, injectTo: "head-prepend" }];
      },
    },
  };
}
