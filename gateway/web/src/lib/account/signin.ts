/** Why a sign-in through the identity provider came to nothing, in words. */
const WORDS: Record<string, string> = {
  denied: "The identity provider did not sign you in.",
  expired: "The sign-in took too long, or was begun in another window. Try again.",
  provider: "The identity provider can't be reached, or said something that can't be believed. Try again in a moment.",
  not_allowed: "Your account at the identity provider may not sign in here. Ask an admin of your organisation.",
};

/** `code` is that of `?signin_error=`: never shown as it is, since anybody can write an address. */
export function signInError(code: string | null): string {
  if (code === null) return "";
  return WORDS[code] ?? "The sign-in through the identity provider failed. Try again, or sign in another way.";
}

export const SHORTEST = 8;

/** How a new password is doing, for the line under it. */
export function passwordHint(password: string): string {
  const missing = SHORTEST - [...password].length;
  if (!password) return `At least ${SHORTEST} characters. A few unrelated words are easy to keep in mind.`;
  if (missing > 0) return `${missing} more character${missing === 1 ? "" : "s"}.`;
  if (new Set(password).size < 5) return "Long enough, but easily guessed.";
  return [...password].length < 12 ? "Good. Longer is better." : "Strong enough.";
}
