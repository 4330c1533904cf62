// Runs before the first paint. The key and its values are those of lib/theme.svelte.ts.
try {
  const chosen = localStorage.getItem("antiphon.theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
} catch {
  // Storage is blocked: the system's theme holds.
}
