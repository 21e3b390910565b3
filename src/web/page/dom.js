"use strict";
// Elements are made with textContent only: text of an object never becomes HTML.

const at = (id) => document.getElementById(id);

/** Makes an element: `make("a", {href: "#"}, "text", child)`. A `null` child is left out. */
function make(name, attributes, ...children) {
  const element = document.createElement(name);
  return fill(element, attributes, children);
}

/** The same for SVG. */
function draw(name, attributes, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);
}

function fill(element, attributes, children) {
  for (const [key, value] of Object.entries(attributes || {})) {
    if (value === true) element.setAttribute(key, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(key, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

/**
 * A table of rows that are laid out one by one. A browser lays out a `<table>` as a whole, which takes a second for a
 * thousand rows.
 */
function grid(name, columns, ...rows) {
  const head = columns.map((title) => make("div", { role: "columnheader" }, title));
  return make(
    "div",
    { class: "grid", role: "table", "aria-label": name },
    make("div", { role: "rowgroup", class: "head" }, make("div", { role: "row", class: "row" }, ...head)),
    make("div", { role: "rowgroup", class: "body" }, ...rows),
  );
}

const gridRow = (attributes, ...cells) => make("div", { role: "row", ...attributes, class: `row ${attributes.class || ""}` }, ...cells);
const gridCell = (title, attributes, ...children) => make("div", { role: "cell", "data-title": title, ...attributes }, ...children);

/** A number of seconds in its largest unit, as kubectl does. */
function span(seconds) {
  const s = Math.max(0, Math.round(seconds));
  if (s < 120) return s + "s";
  if (s < 7200) return Math.floor(s / 60) + "m";
  if (s < 172800) return Math.floor(s / 3600) + "h";
  return Math.floor(s / 86400) + "d";
}

const ageOf = (time) => span((Date.now() - Date.parse(time)) / 1000);

/** A time as an age that goes on. */
function age(time) {
  if (!time) return null;
  return make("time", { datetime: time, title: time, "data-age": true }, ageOf(time));
}

function refreshAges() {
  for (const element of document.querySelectorAll("time[data-age]")) {
    const text = ageOf(element.dateTime);
    if (element.textContent !== text) element.textContent = text;
  }
}
setInterval(refreshAges, 5000);

/**
 * Makes the children of `parent` those of `items`, in that order. An element whose key and signature are as before stays,
 * so that focus, selection and place do not change. `render(item)` makes one.
 */
function reconcile(parent, items, keyOf, render) {
  const before = new Map();
  let focused = null;
  for (const child of parent.children) {
    before.set(child.dataset.key, child);
    if (child.contains(document.activeElement)) focused = child.dataset.key;
  }
  let next = parent.firstElementChild;
  for (const item of items) {
    const key = keyOf(item);
    const signature = JSON.stringify(item);
    let element = before.get(key);
    before.delete(key);
    if (!element || element.signature !== signature) {
      const fresh = render(item, element);
      if (element && fresh !== element) {
        if (next === element) next = fresh;
        element.replaceWith(fresh);
      }
      element = fresh;
      element.dataset.key = key;
      element.signature = signature;
    }
    if (element === next) next = next.nextElementSibling;
    else parent.insertBefore(element, next);
  }
  for (const gone of before.values()) gone.remove();
  // An element that was replaced or moved has lost the focus.
  if (focused !== null && document.activeElement === document.body) {
    const held = [...parent.children].find((child) => child.dataset.key === focused);
    if (held) (held.querySelector("a") || held).focus({ preventScroll: true });
  }
}
