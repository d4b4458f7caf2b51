// Comforts of the pages; without scripts they work all the same.
"use strict";

// Enter sends, Shift+Enter begins a line. While an input method composes a character, Enter is its own.
document.addEventListener("keydown", (event) => {
  const box = event.target;
  if (event.key !== "Enter" || event.shiftKey || event.isComposing || !(box instanceof HTMLTextAreaElement)) return;
  if (!("send" in box.dataset)) return;
  event.preventDefault();
  if (box.value.trim()) box.form.requestSubmit();
});

// The newest message stays in sight for whoever is at the end of the page already.
const NEAR_PIXELS = 160;
let follows = true;
const atEnd = () => innerHeight + scrollY >= document.documentElement.scrollHeight - NEAR_PIXELS;
const toEnd = () => scrollTo(0, document.documentElement.scrollHeight);

addEventListener("scroll", () => { follows = atEnd(); }, { passive: true });
addEventListener("DOMContentLoaded", () => {
  const log = document.getElementById("log");
  if (log === null) return;
  if (!location.hash) toEnd();
  const seen = new MutationObserver(() => { if (follows) toEnd(); });
  seen.observe(log, { childList: true });  // messages, not what is opened below one
  const live = document.getElementById("live");
  if (live !== null) seen.observe(live, { childList: true, subtree: true, characterData: true });
});

// After a form was sent by htmx its box is drawn anew: the cursor goes back into it.
document.addEventListener("htmx:after:swap", () => {
  if (document.activeElement === document.body) document.querySelector("#composer textarea")?.focus();
});
