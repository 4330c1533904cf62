/**
 * Makes `host`'s children equal to `wanted`'s and touches only what differs: a reader's selection
 * and the browser's layout of all that was there before survive.
 */
export function morph(host: Node, wanted: Node): void {
  let at = host.firstChild;
  for (let next = wanted.firstChild; next; ) {
    const after = next.nextSibling;
    if (!at) host.appendChild(next);
    else {
      const following: ChildNode | null = at.nextSibling;
      if (!reuse(at, next)) host.replaceChild(next, at);
      at = following;
    }
    next = after;
  }
  while (at) {
    const following: ChildNode | null = at.nextSibling;
    at.remove();
    at = following;
  }
}

function reuse(old: Node, wanted: Node): boolean {
  if (old.nodeType !== wanted.nodeType || old.nodeName !== wanted.nodeName) return false;
  if (old instanceof Text && wanted instanceof Text) {
    if (wanted.data.startsWith(old.data)) {
      if (wanted.length > old.length) old.appendData(wanted.data.slice(old.length));
    } else old.data = wanted.data;
    return true;
  }
  if (!(old instanceof Element && wanted instanceof Element) || !sameAttributes(old, wanted)) return false;
  morph(old, wanted);
  return true;
}

function sameAttributes(a: Element, b: Element): boolean {
  if (a.attributes.length !== b.attributes.length) return false;
  return Array.from(a.attributes).every(({ name, value }) => b.getAttribute(name) === value);
}
