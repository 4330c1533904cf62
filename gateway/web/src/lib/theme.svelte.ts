export type Theme = "system" | "light" | "dark";
const ORDER: Theme[] = ["system", "light", "dark"];

/** theme-boot.js reads the same key before the first paint, as a bare word. */
class ThemeChoice {
  value = $state<Theme>(document.documentElement.dataset.theme as Theme | undefined ?? "system");

  next(): void {
    this.value = ORDER[(ORDER.indexOf(this.value) + 1) % ORDER.length] ?? "system";
    if (this.value === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = this.value;
    try {
      localStorage.setItem("antiphon.theme", this.value);
    } catch {
      // Storage is blocked: the choice holds until the next load.
    }
  }
}

export const theme = new ThemeChoice();
