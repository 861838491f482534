// SPDX-License-Identifier: Apache-2.0
"use strict";
const wanted = document.querySelector("#refresh");
const trouble = document.querySelector("#trouble");

// Do not refresh while the reader has selected text or looks at another tab.
const isAway = () => !wanted.checked || document.hidden || !getSelection().isCollapsed;

async function refresh() {
  if (isAway()) return;
  try {
    const answer = await fetch(location.href, { cache: "no-store", signal: AbortSignal.timeout(5000) });
    const text = await answer.text();
    if (isAway()) return;
    const fresh = new DOMParser().parseFromString(text, "text/html");
    document.querySelector("main").replaceWith(fresh.querySelector("main"));
    document.title = fresh.title;
    trouble.textContent = "";
  } catch {
    trouble.textContent = "The pool does not answer: these are its last numbers.";
  }
}

(async function keepFresh() {
  await refresh();
  setTimeout(keepFresh, 2000);
})();
