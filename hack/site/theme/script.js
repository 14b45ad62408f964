// Theme, versions and search of the documentation. All of it is optional: pages work without scripts.
(() => {
  "use strict";
  const body = document.body.dataset;
  const byId = (id) => document.getElementById(id);

  // Theme: that of the system until the reader chooses one.
  const button = byId("theme");
  const stored = () => { try { return localStorage.getItem("theme"); } catch { return null; } };
  const isDark = () => (document.documentElement.dataset.theme ||
    (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  const show = () => button.setAttribute("aria-pressed", String(isDark()));
  if (stored()) document.documentElement.dataset.theme = stored();
  button.addEventListener("click", () => {
    const theme = isDark() ? "light" : "dark";
    document.documentElement.dataset.theme = theme;
    try { localStorage.setItem("theme", theme); } catch { /* the choice lasts for this page */ }
    show();
  });
  show();

  // Pages are folded on small screens.
  if (matchMedia("(max-width: 60rem)").matches) byId("menu").open = false;

  // Versions: the same page of another version, or its first page if it has no such page.
  const select = byId("version");
  const versions = window.versions || [{ Name: body.version, Pages: [] }];
  select.replaceChildren(...versions.map((v) => new Option(v.Name, v.Name, false, v.Name === body.version)));
  select.addEventListener("change", () => {
    const { Pages } = versions.find((v) => v.Name === select.value);
    location.href = body.base + "../" + select.value + "/" + (Pages.includes(body.file) ? body.file : "index.html");
  });

  // Search: the index is loaded when the reader begins to search.
  const input = byId("search"), results = byId("results"), page = byId("page");
  let index = null;
  const load = () => index ??= new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = body.base + "search.js";
    script.onload = () => resolve(window.searchIndex);
    script.onerror = () => { index = null; reject(new Error("the search index cannot be loaded")); };
    document.head.append(script);
  });
  const score = (entry, words) => {
    let sum = 0;
    for (const word of words) {
      const heading = entry.Heading.toLowerCase(), title = entry.Page.toLowerCase();
      const inHeading = heading.includes(word), inTitle = title.includes(word);
      const count = entry.Text.toLowerCase().split(word).length - 1;
      if (!inHeading && !inTitle && count === 0) return 0;
      sum += (heading === word ? 40 : 0) + (inHeading ? 20 : 0) + (inTitle ? 10 : 0) + Math.min(count, 5);
    }
    return sum;
  };
  const excerptOf = (text, words) => {
    const at = Math.max(0, text.toLowerCase().indexOf(words[0]) - 60);
    const part = text.slice(at, at + 200);
    const out = document.createElement("p");
    let rest = part;
    while (rest) {
      const lower = rest.toLowerCase();
      const [next, word] = words.map((w) => [lower.indexOf(w), w]).filter(([i]) => i >= 0)
        .sort((a, b) => a[0] - b[0])[0] || [-1, ""];
      if (next < 0) break;
      const mark = document.createElement("mark");
      mark.textContent = rest.slice(next, next + word.length);
      out.append(rest.slice(0, next), mark);
      rest = rest.slice(next + word.length);
    }
    out.append(rest);
    return out;
  };
  const render = (found, words) => {
    const heading = document.createElement("h1"); // the page and its heading are hidden
    heading.textContent = found.length === 1 ? "1 result" : found.length + " results";
    const list = document.createElement("ol");
    for (const { entry } of found.slice(0, 20)) {
      const link = document.createElement("a");
      link.href = body.base + entry.File + (entry.ID ? "#" + entry.ID : "");
      link.textContent = entry.Page === entry.Heading ? entry.Page : entry.Page + ": " + entry.Heading;
      link.addEventListener("click", () => { input.value = ""; results.hidden = true; page.hidden = false; });
      const item = document.createElement("li");
      item.append(link, excerptOf(entry.Text, words));
      list.append(item);
    }
    results.replaceChildren(heading, list);
  };
  const wanted = () => input.value.toLowerCase().split(/\s+/).filter(Boolean);
  const search = async () => {
    const typed = wanted().length > 0;
    results.hidden = !typed;
    page.hidden = typed;
    if (!typed) return;
    try {
      const entries = await load();
      const words = wanted(); // the reader went on typing while the index was loaded
      const found = entries.map((entry) => ({ entry, points: score(entry, words) })).filter((f) => f.points > 0)
        .sort((a, b) => b.points - a.points);
      render(found, words);
    } catch (problem) {
      results.textContent = problem.message;
    }
  };
  input.addEventListener("input", search);
  byId("search-form").addEventListener("submit", (event) => {
    event.preventDefault();
    results.querySelector("a")?.focus();
  });
  document.addEventListener("keydown", (event) => {
    const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(document.activeElement.tagName);
    if (event.key === "/" && !typing) { event.preventDefault(); input.focus(); }
    if (event.key === "Escape" && input.value) { input.value = ""; search(); input.focus(); }
  });
})();
