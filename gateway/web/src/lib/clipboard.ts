import { copyText } from "./copy";
import { clipboardHtml } from "./markdown/render";

/** Writes a message as markdown and as HTML together: an editor takes one, a document the other. */
export async function copyMarkdown(text: string): Promise<void> {
  if (!navigator.clipboard || typeof ClipboardItem === "undefined") return copyText(text);
  const html = new Blob([clipboardHtml(text)], { type: "text/html" });
  const plain = new Blob([text], { type: "text/plain" });
  await navigator.clipboard.write([new ClipboardItem({ "text/html": html, "text/plain": plain })]);
}
