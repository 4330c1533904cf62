/** localStorage that never throws: it is blocked in some privacy modes, and it can be full. */
export function load<T>(key: string, fallback: T): T {
  try {
    const text = localStorage.getItem(`antiphon.${key}`);
    return text === null ? fallback : (JSON.parse(text) as T);
  } catch {
    return fallback;
  }
}

/** Removes what a person typed here, and says whether there was anything; choices such as the theme stay. */
export function forgetWords(): boolean {
  try {
    const words = Object.keys(localStorage).filter((key) => /^antiphon\.(draft\.|outbox$)/.test(key));
    for (const key of words) localStorage.removeItem(key);
    return words.length > 0;
  } catch {
    // Storage is blocked: it holds nothing.
    return false;
  }
}

export function save(key: string, value: unknown): void {
  try {
    if (value === undefined || value === "") localStorage.removeItem(`antiphon.${key}`);
    else localStorage.setItem(`antiphon.${key}`, JSON.stringify(value));
  } catch {
    // Nothing to do: the page works on without memory.
  }
}
