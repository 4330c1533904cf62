import { svelte } from "@sveltejs/vite-plugin-svelte";
import { defineConfig } from "vitest/config";
import { blockingScript, precompress } from "./build/plugins";

const SERVER = "http://127.0.0.1:8000";

export default defineConfig({
  plugins: [svelte(), blockingScript("src/theme-boot.js", "theme-boot.js"), precompress()],
  build: { target: "es2022", modulePreload: { polyfill: false }, assetsInlineLimit: 0 },
  server: { host: "127.0.0.1", proxy: { "/api": SERVER, "/signin": SERVER } },
  test: { include: ["tests/**/*.test.ts"], environment: "jsdom" },
});
