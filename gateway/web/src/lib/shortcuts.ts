import { chat } from "./chat.svelte";
import { router } from "./router.svelte";
import { ui } from "./ui.svelte";

const mac = /mac|iphone|ipad/i.test(navigator.userAgent);
const CTRL = mac ? "⌘" : "Ctrl";

interface Shortcut {
  keys: string[];
  label: string;
  matches?: (event: KeyboardEvent) => boolean;
  run?: () => unknown;
}

const command = (event: KeyboardEvent) => (mac ? event.metaKey : event.ctrlKey) && !event.altKey;

/** Those without `run` are handled where they apply; they are here for the list. */
export const shortcuts: Shortcut[] = [
  { keys: ["Enter"], label: "Send (on a touch keyboard: new line)" },
  { keys: ["Shift", "Enter"], label: "New line" },
  { keys: [CTRL, "Enter"], label: "Send, on any keyboard" },
  { keys: ["↑"], label: "Edit your last message, from an empty composer" },
  { keys: ["Esc"], label: "Stop the answer; close what is open" },
  {
    keys: [CTRL, "K"],
    label: "Search conversations",
    matches: (event) => command(event) && !event.shiftKey && event.key.toLowerCase() === "k",
    run: () => {
      router.closeSettings();
      ui.search();
    },
  },
  {
    keys: [CTRL, "Shift", "O"],
    label: "New chat",
    matches: (event) => command(event) && event.shiftKey && event.key.toLowerCase() === "o",
    run: () => router.go(null),
  },
  {
    keys: [CTRL, "Shift", "S"],
    label: "Show or hide the list of conversations",
    matches: (event) => command(event) && event.shiftKey && event.key.toLowerCase() === "s",
    run: () => router.settings === null && ui.toggleSidebar(),
  },
  {
    keys: [CTRL, "/"],
    label: "This list",
    matches: (event) => command(event) && event.key === "/",
    run: () => (ui.shortcuts = !ui.shortcuts),
  },
];

export function onKey(event: KeyboardEvent): void {
  if (event.defaultPrevented || event.isComposing) return;
  if (event.key === "Escape") return escape();
  const shortcut = shortcuts.find(({ matches }) => matches?.(event));
  if (!shortcut?.run) return;
  event.preventDefault();
  shortcut.run();
}

function escape(): void {
  if (router.settings !== null) return;
  if (ui.panel) ui.panel = false;
  else if (ui.drawer) ui.drawer = false;
  else void chat.stop();
}
