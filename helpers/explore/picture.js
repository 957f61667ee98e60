// How a panel's picture changes. A browser needs far longer to lay out a thousand texts anew than for all the rest, so
// only what differs is touched. panel.py joins this file and panel.js into one module.

// Turn one piece of a picture into another.
function become(old, next) {
  for (const { name, value } of next.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  for (const { name } of [...old.attributes]) if (!next.hasAttribute(name)) old.removeAttribute(name);
  let place = old.firstChild;
  for (const child of [...next.childNodes]) {
    const after = place?.nextSibling ?? null;
    if (!place) old.append(child);
    else if (place.nodeName !== child.nodeName) place.replaceWith(child);
    else if (child.nodeType === Node.TEXT_NODE) place.data = child.data;
    else if (!place.isEqualNode(child)) become(place, child);
    place = after;
  }
  for (let after; place; place = after) {
    after = place.nextSibling;
    place.remove();
  }
}

const parse = (markup) => {
  const template = document.createElement("template");
  template.innerHTML = markup;
  return template.content.firstElementChild;
};

// With one element a line, return the element of each line below the root; null if the drawing is written otherwise.
function elementsByLine(lines, svg) {
  const elements = [...svg.querySelectorAll("*")];
  const starts = lines.map((line, i) => [line, i]).filter(([line]) => /^<[a-z]/.test(line) && !unseen(line));
  if (starts.length !== elements.length) return null;
  if (!starts.every(([line], k) => line.startsWith(`<${elements[k].tagName}`))) return null;
  return new Map(starts.map(([, i], k) => [i, elements[k]]));
}

const unseen = (line) => line.startsWith("<svg") || line.startsWith("<title");

const plain = (text) => (text?.includes("&") ? parse(`<p>${text}</p>`).textContent : text);

// What one line of a drawing says, if it holds one whole element: its tag, its attributes and the text in it.
function read(line) {
  const [, tag, given, text] = line.match(/^<([a-z]+)((?: [\w-]+="[^"]*")*)(?:\/>|>([^<]*)<\/\1>)$/) ?? [];
  const attributes = (given ?? "").matchAll(/ ([\w-]+)="([^"]*)"/g);
  return tag && { tag, text: plain(text), attributes: new Map(Array.from(attributes, ([, k, v]) => [k, plain(v)])) };
}

// The usual case of a moved slider: the same lines, a few of them with other numbers. Says whether it was that case.
function changeLines(picture, lines) {
  if (!picture.elements || picture.lines.length !== lines.length) return false;
  const changed = lines.flatMap((line, i) => (line === picture.lines[i] || line.startsWith("<title") ? [] : [i]));
  const pairs = changed.map((i) => [picture.elements.get(i), read(picture.lines[i]), read(lines[i])]);
  if (!pairs.every(([element, old, next]) => element && next && old?.tag === next.tag)) return false;
  for (const [element, old, next] of pairs) {
    // an element's own attributes are slow to ask for: the old line knows them
    for (const [k, v] of next.attributes) if (old.attributes.get(k) !== v) element.setAttribute(k, v);
    for (const k of old.attributes.keys()) if (!next.attributes.has(k)) element.removeAttribute(k);
    if (old.text !== next.text) element.textContent = next.text;
  }
  return true;
}

// The picture lives in a shadow root: its ids (patterns, titles) can't meet those of another picture.
function patchPicture(picture, markup, alt) {
  picture.hidden = !markup;
  const lines = markup.replaceAll("><", ">\n<").split("\n");
  if (!changeLines(picture, lines)) {
    const svg = parse(lines.join(""));
    if (!svg) return;
    svg.querySelector(":scope > title")?.remove(); // it would pop up as a tooltip over the whole picture
    svg.setAttribute("role", "img");
    svg.setAttribute("style", "display:block");
    if (picture.shadow.firstElementChild) become(picture.shadow.firstElementChild, svg);
    else picture.shadow.append(svg);
    picture.elements = elementsByLine(lines, picture.shadow.firstElementChild);
  }
  picture.lines = lines;
  picture.shadow.firstElementChild.setAttribute("aria-label", alt);
}

// In a picture wider than the page, bring what is marked as the present place into sight.
function followMark(picture) {
  const mark = picture.shadow.querySelector("[data-now]");
  if (!mark || picture.scrollWidth <= picture.clientWidth + 1) return; // widths cost a layout: ask only where needed
  const place = mark.getBoundingClientRect();
  const window = picture.getBoundingClientRect();
  if (place.left >= window.left && place.right <= window.right) return;
  picture.scrollLeft += (place.left + place.right) / 2 - (window.left + window.right) / 2;
}
