/* Copy buttons on code, and figures that open in full size. Nothing is fetched from elsewhere. */

function codeOf(pre) {
  const copy = pre.cloneNode(true);
  if (copy.querySelector(".gp")) {  // a doctest: what is typed, without prompts and answers
    copy.querySelectorAll(".gp, .go").forEach((part) => part.remove());
    return copy.textContent.replace(/\n{2,}/g, "\n");
  }
  return copy.textContent;
}

function addCopyButton(pre) {
  const button = document.createElement("button");
  button.className = "copy";
  button.type = "button";
  button.textContent = "copy";
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(codeOf(pre));
      button.textContent = "copied";
    } catch {
      button.textContent = "not allowed";
    }
    setTimeout(() => { button.textContent = "copy"; }, 1500);
  });
  pre.parentElement.append(button);
}

function letEnlarge(image, dialog) {
  const link = document.createElement("a");
  link.href = image.src;
  link.className = "enlarge";
  link.title = "Enlarge";
  image.replaceWith(link);
  link.append(image);
  link.addEventListener("click", (event) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey) return;  // into a tab or window of its own
    event.preventDefault();
    const large = document.createElement("img");
    large.src = image.src;
    large.alt = image.alt;
    dialog.replaceChildren(large);
    dialog.showModal();
  });
}

document.addEventListener("DOMContentLoaded", () => {
  if (navigator.clipboard) {
    document.querySelectorAll("article div.highlight > pre").forEach((pre) => {
      if (!pre.closest(".cell_output, .highlight-text")) addCopyButton(pre);
    });
  }
  const dialog = document.createElement("dialog");
  dialog.className = "enlarged";
  dialog.addEventListener("click", () => dialog.close());
  document.body.append(dialog);
  document.querySelectorAll("article img").forEach((image) => {
    if (!image.closest("a")) letEnlarge(image, dialog);
  });
});
