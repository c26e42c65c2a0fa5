"use strict";

// Tables that are wider than the screen: keys can scroll what has the focus, so they take it.
const scrolling = new ResizeObserver((changes) => {
  for (const { target } of changes) {
    const wide = target.scrollWidth > target.clientWidth + 1;
    const caption = target.querySelector("caption").textContent;
    const says = { tabindex: "0", role: "region", "aria-label": caption };
    for (const [name, value] of Object.entries(says)) {
      if (wide) target.setAttribute(name, value);
      else target.removeAttribute(name);
    }
  }
});
for (const box of document.querySelectorAll(".scroll")) scrolling.observe(box);

// Figures of steps: one picture at a time, chosen by slider, buttons or keys.

for (const figure of document.querySelectorAll("figure.steps")) {
  const frames = [...figure.querySelectorAll("li")];
  const slider = figure.querySelector("input");
  const [output, said] = figure.querySelector(".status").children;
  const [previous, play, next] = figure.querySelectorAll("button");
  const last = frames.length - 1;
  let timer = null;

  const show = (step) => {
    const at = Math.min(Math.max(step, 0), last);
    frames.forEach((frame, number) => { frame.hidden = number !== at; });
    slider.value = at;
    slider.setAttribute("aria-valuetext", frames[at].textContent);
    output.textContent = `${at} of ${last}`;
    said.textContent = frames[at].textContent;
    // A button that is disabled loses the focus, and with it the keys; this one only says so.
    previous.setAttribute("aria-disabled", at === 0);
    next.setAttribute("aria-disabled", at === last);
  };
  const stop = () => {
    clearInterval(timer);
    timer = null;
    play.textContent = "Play";
  };
  const go = (step) => { stop(); show(step); };
  const start = () => {
    if (slider.valueAsNumber === last) show(0);
    play.textContent = "Pause";
    timer = setInterval(() => {
      show(slider.valueAsNumber + 1);
      if (slider.valueAsNumber === last) stop();
    }, 900);
  };

  slider.addEventListener("input", () => go(slider.valueAsNumber));
  previous.addEventListener("click", () => go(slider.valueAsNumber - 1));
  next.addEventListener("click", () => go(slider.valueAsNumber + 1));
  play.addEventListener("click", () => (timer === null ? start() : stop()));
  figure.classList.add("live");
  figure.querySelector(".controls").hidden = false;
  show(0);
}
