// Comfort only: everything that this script shows is in the document without it.
"use strict";

(() => {
  const root = document.documentElement;
  root.classList.add("enhanced");

  const controls = document.getElementById("matrix-controls");
  if (controls) {
    const panels = new Map(
      ["threads", "cpus"].map((axis) => [axis, document.getElementById(`matrix-${axis}`)]),
    );
    const press = (chosen) => {
      for (const button of chosen.parentElement.querySelectorAll("button")) {
        button.setAttribute("aria-pressed", String(button === chosen));
      }
    };
    const showAxis = (chosen) => {
      for (const [axis, panel] of panels) if (panel) panel.hidden = axis !== chosen;
    };
    const showKind = (kind) => {
      for (const picture of document.querySelectorAll("svg.matrix")) {
        picture.classList.remove("show-all", "show-true", "show-false");
        picture.classList.add(`show-${kind}`);
      }
    };
    controls.addEventListener("click", (event) => {
      const button = event.target.closest("button");
      if (!button) return;
      press(button);
      if (button.dataset.axis) showAxis(button.dataset.axis);
      if (button.dataset.kind) showKind(button.dataset.kind);
    });
    showAxis("threads");
    controls.hidden = false;
  }

  for (const panel of document.querySelectorAll(".matrix-panel")) {
    const readout = panel.querySelector(".readout");
    if (!readout) continue;
    readout.hidden = false;
    const show = (event) => {
      const title = event.target.closest(".cell")?.querySelector("title");
      if (title) readout.textContent = title.textContent;
    };
    panel.addEventListener("pointerover", show);
    panel.addEventListener("pointerdown", show);
  }

  const select = (element) => {
    const range = document.createRange();
    range.selectNodeContents(element);
    const selection = getSelection();
    selection.removeAllRanges();
    selection.addRange(range);
  };
  for (const button of document.querySelectorAll("button.copy")) {
    const code = button.parentElement.querySelector("code");
    button.hidden = false;
    button.addEventListener("click", async () => {
      // A page opened from disk may not be allowed to use the clipboard: then the source is
      // selected, ready for the keyboard.
      try {
        await navigator.clipboard.writeText(code.textContent);
        button.textContent = "Copied";
      } catch {
        select(code);
        button.textContent = "Selected";
      }
      setTimeout(() => { button.textContent = "Copy"; }, 2000);
    });
  }
})();
