// The front end of helpers/explore/panel.py: draws a state, patches it with the next one, reports what the reader does.
// It never rebuilds a control that stays, so focus and caret survive every update. panel.py puts picture.js in front.

// Each panel loads this file anew, so what must differ in the whole page is numbered by the page.
const next = () => (document.coursePanels = (document.coursePanels ?? 0) + 1);

const make = (tag, cls, attributes = {}) => {
  const node = document.createElement(tag);
  if (cls) node.className = cls;
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  return node;
};

// JupyterLab takes arrow keys and letters for itself unless the focused element says otherwise.
const focusable = (node) => {
  node.setAttribute("data-lm-suppress-shortcuts", "true");
  return node;
};

const setText = (node, text) => {
  if (node.textContent !== text) node.textContent = text;
};

// A sentence with `code` in it.
const setProse = (node, text) => {
  if (node.dataset.text === text) return;
  node.dataset.text = text;
  const parts = text.split("`").map((part, i) => (i % 2 ? Object.assign(make("code"), { textContent: part }) : part));
  node.replaceChildren(...(parts.length % 2 ? parts : [text]));
};

const setOptions = (select, options) => {
  const same = select.options.length === options.length && options.every((o, i) => select.options[i].value === o);
  if (!same) select.replaceChildren(...options.map((o) => new Option(o, o)));
};

// Each kind of control: how it is made (once) and how it is patched (with every state).
const kinds = {
  select: {
    make(control, send) {
      const input = focusable(make("select"));
      input.addEventListener("change", () => send(control.name, input.value));
      return { input };
    },
    patch({ input }, control) {
      setOptions(input, control.options);
      if (input.value !== control.value) input.value = control.value;
    },
  },
  slider: {
    make(control, send) {
      const input = focusable(make("input", "", { type: "range", step: "1" }));
      const output = make("span", "cp-value", { "aria-hidden": "true" });
      input.addEventListener("input", () => send(control.name, Number(input.value)));
      return { input, extra: output };
    },
    patch({ input, extra }, control) {
      input.min = control.low;
      input.max = control.high;
      if (Number(input.value) !== control.value) input.value = control.value;
      const shown = control.shown || String(control.value);
      setText(extra, shown);
      input.setAttribute("aria-valuetext", shown);
    },
  },
  text: {
    make(control, send) {
      const input = focusable(make("input", "", { type: "text", spellcheck: "false", autocomplete: "off" }));
      input.addEventListener("input", () => send(control.name, input.value));
      input.addEventListener("keydown", (event) => {
        const enter = input.dataset.enter;
        if (event.key === "Enter" && enter && !event.isComposing) send(...JSON.parse(enter), true);
      });
      return { input };
    },
    patch({ input }, control) {
      input.dataset.enter = control.enter ? JSON.stringify(control.enter) : "";
      if (input.value !== control.value) input.value = control.value;
    },
  },
  buttons: {
    make() {
      return { input: make("div", "cp-buttons") };
    },
    patch({ input }, control, send) {
      while (input.children.length > control.options.length) input.lastChild.remove();
      control.options.forEach((option, i) => {
        let button = input.children[i];
        if (!button) {
          button = input.appendChild(focusable(make("button", "", { type: "button" })));
          button.addEventListener("click", () => {
            if (button.getAttribute("aria-disabled") !== "true") send(button.dataset.name, button.dataset.value, true);
          });
        }
        const mark = control.marks[i] || "";
        button.dataset.name = control.name;
        button.dataset.value = option;
        button.dataset.mark = mark;
        setText(button, { right: "✓ ", wrong: "✗ " }[mark] ? { right: "✓ ", wrong: "✗ " }[mark] + option : option);
        // a disabled button would lose the focus, and with it a keyboard user's place
        button.setAttribute("aria-disabled", String(control.locked));
      });
    },
  },
};

function makeControl(control, send) {
  const id = `cp-${next()}`;
  const row = make("div", `cp-row cp-${control.kind}`);
  const parts = kinds[control.kind].make(control, send);
  const group = control.kind === "buttons";
  const label = make(group ? "span" : "label", "cp-label", group ? { id: `${id}-label` } : { for: id });
  label.hidden = !control.label;
  parts.input.id = id;
  if (group && control.label) {
    parts.input.setAttribute("role", "group");
    parts.input.setAttribute("aria-labelledby", label.id);
  }
  row.append(label, parts.input, ...(parts.extra ? [parts.extra] : []));
  return { ...parts, row, label, kind: control.kind };
}

// Controls that stay keep their nodes and are never moved; others come and go around them.
function patchControls(box, held, controls, send, pending) {
  const key = (control) => `${control.kind}:${control.name}`;
  const wanted = new Set(controls.map(key));
  for (const [name, parts] of held) {
    if (wanted.has(name)) continue;
    parts.row.remove();
    held.delete(name);
  }
  let place = box.firstChild;
  for (const control of controls) {
    if (!held.has(key(control))) held.set(key(control), makeControl(control, send));
    const parts = held.get(key(control));
    if (parts.row === place) place = place.nextSibling;
    else box.insertBefore(parts.row, place);
    setText(parts.label, control.label);
    if (!pending.has(control.name)) kinds[control.kind].patch(parts, control, send);
  }
}

function patchTable(table, rows) {
  table.hidden = rows.length === 0;
  const cell = (tag, text) => {
    const node = make(tag);
    if (tag === "th") node.scope = "col";
    node.textContent = text;
    return node;
  };
  table.replaceChildren(
    ...rows.map((row, i) => {
      const line = make("tr");
      line.append(...row.map((text) => cell(i ? "td" : "th", text)));
      return line;
    }),
  );
}

async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // no clipboard without https or permission: the old way, through a selected field
    const field = make("textarea");
    field.value = text;
    document.body.append(field);
    field.select();
    document.execCommand("copy");
    field.remove();
  }
}

function render({ model, el }) {
  const view = next();
  const root = make("div", "cp-panel", { role: "group", tabindex: "-1" });
  const controls = make("div", "cp-controls");
  const actions = make("div", "cp-controls");
  const picture = focusable(make("div", "cp-picture", { role: "group", "aria-label": "picture" }));
  picture.shadow = picture.attachShadow({ mode: "open" });
  const sentence = make("p", "cp-sentence", { "aria-live": "polite" });
  const table = make("table", "cp-table");
  const line = make("div", "cp-code");
  const code = line.appendChild(make("code"));
  const copy = line.appendChild(focusable(make("button", "", { type: "button", "aria-label": "copy the code" })));
  copy.textContent = "copy";
  const note = make("p", "cp-note", { "aria-live": "polite" });
  root.append(controls, actions, line, sentence, note, table, picture);
  el.append(root);

  // One message is under way at a time. What happens meanwhile is gathered (a dragged slider keeps only its newest
  // value) and goes out as one message when the answer is there: never a queue of stale pictures.
  const held = { controls: new Map(), actions: new Map() };
  const pending = new Map();
  let token = "";
  let timer = 0;
  const flush = () => {
    if (token || pending.size === 0) return;
    const changes = [...pending.values()];
    pending.clear();
    token = `${view}-${next()}`;
    root.dataset.busy = "true";
    const silence = (text) => {
      setProse(note, text);
      note.hidden = false;
      token = "";
      delete root.dataset.busy;
    };
    timer = setTimeout(() => {
      silence("No answer from the kernel yet: it may be busy. If it was restarted, run this cell again.");
      flush();
    }, 5000);
    try {
      model.send({ changes, token });
    } catch {
      clearTimeout(timer);
      silence("The kernel behind this panel is gone: run this cell again.");
    }
  };
  const send = (name, value, press = false) => {
    const slot = press ? `${name}:${next()}` : name;
    pending.delete(slot); // newest last, so that presses and values keep their order
    pending.set(slot, [name, value]);
    flush();
  };

  const show = () => {
    const state = model.get("state");
    if (state.token && state.token === token) {
      clearTimeout(timer);
      token = "";
    }
    const focused = root.contains(document.activeElement);
    root.setAttribute("aria-label", state.title);
    patchControls(controls, held.controls, state.controls, send, pending);
    patchControls(actions, held.actions, state.actions, send, pending);
    patchPicture(picture, state.svg, state.alt);
    followMark(picture);
    setProse(sentence, state.sentence);
    root.dataset.mood = state.mood;
    line.hidden = !state.code;
    if (state.code_first && root.firstChild !== line) root.prepend(line);
    setText(code, state.code);
    patchTable(table, state.table);
    setProse(note, state.note);
    note.hidden = !state.note;
    if (focused && !root.contains(document.activeElement)) root.focus({ preventScroll: true });
    if (!token) delete root.dataset.busy;
    root.dataset.shown = state.token; // for tests: the last message whose answer is on the page
    flush();
  };

  copy.addEventListener("click", async () => {
    await copyText(code.textContent);
    copy.textContent = "copied";
    setTimeout(() => (copy.textContent = "copy"), 1500);
    copy.focus({ preventScroll: true });
  });

  // A picture wider than the page scrolls, and then the keyboard must reach it.
  const scrolls = new ResizeObserver(() => {
    if (picture.scrollWidth > picture.clientWidth + 1) picture.tabIndex = 0;
    else picture.removeAttribute("tabindex");
    followMark(picture);
  });
  scrolls.observe(picture);

  model.on("change:state", show);
  show();
  return () => {
    model.off("change:state", show);
    scrolls.disconnect();
    clearTimeout(timer);
  };
}

export default { render };
