// Elements made from text. Text goes in as text, never as markup.

const SVG = "http://www.w3.org/2000/svg";

const fill = (element, attributes, children) => {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === false || value === null || value === undefined) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children);
  return element;
};

// An HTML element: `make("td", { class: "text" }, "words")`.
export const make = (tag, attributes = {}, ...children) =>
  fill(document.createElement(tag), attributes, children);

// An SVG element.
export const draw = (tag, attributes = {}, ...children) =>
  fill(document.createElementNS(SVG, tag), attributes, children);

export const byId = (id) => document.getElementById(id);

// A name within a sentence: characters that turn the direction of text end with it.
export const isolated = (name) => `\u2068${name}\u2069`;

// Changes the text only if it differs: a selection in it survives.
export const say = (element, text) => {
  if (element.textContent !== text) element.textContent = text;
};

// Gives the list `wanted.length` children, made by `create` and brought up to date by `update`.
// Children that stay keep focus and selection.
export const list = (parent, wanted, create, update) => {
  while (parent.children.length > wanted.length) parent.lastElementChild.remove();
  wanted.forEach((item, index) => {
    if (!parent.children[index]) parent.append(create(item));
    update(parent.children[index], item);
  });
};
