(() => {
  "use strict";
  const root = document.documentElement;
  const all = (selector, from) => Array.from((from || document).querySelectorAll(selector));

  // Theme: the system's, unless the reader chose one.
  const store = {
    get() { try { return localStorage.getItem("torchjit-theme"); } catch { return null; } },
    set(value) { try { localStorage.setItem("torchjit-theme", value); } catch { /* file pages may have no storage */ } },
  };
  if (store.get()) root.dataset.theme = store.get();
  const theme = () => {
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    store.set(root.dataset.theme);
  };

  // Long parts are compressed until they are to be seen.
  const unpack = async (e) => {
    const bytes = Uint8Array.from(atob(e.dataset.packed), (c) => c.charCodeAt(0));
    delete e.dataset.packed;  // before it is awaited: a link to what is inside may come at the same time
    try {
      e.innerHTML = await new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"))).text();
    } catch {
      e.textContent = "This browser cannot show compressed parts: the trace has them.";
    }
  };
  addEventListener("toggle", (event) => {
    if (!event.target.open) return;
    all("[data-packed]", event.target).forEach((e) => { if (e.closest("details") === event.target) unpack(e); });
  }, true);

  // A link to something inside closed sections opens them.
  const reveal = async () => {
    const name = decodeURIComponent(location.hash.slice(1));
    if (!name) return;
    const compilation = !document.getElementById(name) && document.getElementById((name.match(/^f\d+c\d+/) || [""])[0]);
    if (compilation) await Promise.all(all("[data-packed]", compilation).map(unpack));
    const target = document.getElementById(name);
    if (!target) return;
    for (let e = target; e; e = e.parentElement) if (e.tagName === "DETAILS") e.open = true;
    target.scrollIntoView({ block: "start" });
  };
  addEventListener("hashchange", reveal);
  addEventListener("click", (event) => {
    const link = event.target.closest("a[href^='#']");
    if (link && link.getAttribute("href") === location.hash) reveal();
  });

  const fold = (open) => all("main details").forEach((d) => { d.open = open; });

  // Which functions the side list and the overview show.
  const filter = document.getElementById("filter");
  const apply = () => {
    const wanted = filter.value.trim().toLowerCase();
    all("[data-name]").forEach((e) => { e.hidden = !e.dataset.name.toLowerCase().includes(wanted); });
  };
  filter.addEventListener("input", apply);

  all("table.sortable th").forEach((head) => {
    const button = head.querySelector("button");
    if (!button) return;
    button.addEventListener("click", () => {
      const sorted = head.getAttribute("aria-sort");
      const falling = sorted ? sorted === "ascending" : head.classList.contains("num");
      all("th", head.parentElement).forEach((h) => h.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", falling ? "descending" : "ascending");
      const body = head.closest("table").tBodies[0];
      const key = (row) => {
        const cell = row.cells[head.cellIndex];
        return cell.dataset.value === undefined ? cell.textContent.trim().toLowerCase() : Number(cell.dataset.value);
      };
      const order = (a, b) => (key(a) > key(b) ? 1 : key(a) < key(b) ? -1 : 0) * (falling ? -1 : 1);
      Array.from(body.rows).sort(order).forEach((row) => body.append(row));
    });
  });

  addEventListener("input", (event) => {
    const input = event.target;
    if (!input.matches(".guards-filter")) return;
    const wanted = input.value.trim().toLowerCase();
    all("tbody tr", input.closest("details")).forEach((row) => {
      row.hidden = !row.textContent.toLowerCase().includes(wanted);
    });
  });

  const copy = async (button) => {
    const text = button.parentElement.querySelector("pre").textContent;
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      const area = document.createElement("textarea");
      area.value = text;
      document.body.append(area);
      area.select();
      document.execCommand("copy");
      area.remove();
    }
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 1200);
  };

  const step = (selector, direction) => {
    const places = all(selector).filter((e) => e.offsetParent !== null || e.closest("details"));
    const bounds = (e) => {
      for (let d = e.closest("details:not([open])"); d; d = d.parentElement.closest("details:not([open])")) e = d;
      return e.getBoundingClientRect().top;
    };
    const next = direction > 0
      ? places.find((e) => bounds(e) > 60)
      : places.reverse().find((e) => bounds(e) < -4);
    if (next) location.hash = next.id;
  };

  const help = document.getElementById("help");
  const actions = {
    "/": () => { filter.focus(); filter.select(); },
    j: () => step("section.function", 1),
    k: () => step("section.function", -1),
    b: () => step(".source .marked", 1),
    B: () => step(".source .marked", -1),
    e: () => fold(true),
    c: () => fold(false),
    t: theme,
    g: () => scrollTo(0, 0),
    "?": () => (help.open ? help.close() : help.showModal()),
  };
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.matches("input, textarea")) {
      if (event.key === "Escape") { event.target.value = ""; event.target.dispatchEvent(new Event("input")); event.target.blur(); }
      return;
    }
    const action = actions[event.key];
    if (action) { event.preventDefault(); action(); }
  });
  addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (!button) return;
    if (button.classList.contains("copy")) copy(button);
    if (button.dataset.key) actions[button.dataset.key]();
  });

  // The side list follows the reader.
  if ("IntersectionObserver" in window) {
    const links = new Map(all(".side a[data-target]").map((a) => [a.dataset.target, a]));
    const seen = new IntersectionObserver((entries) => {
      entries.forEach((entry) => {
        const link = links.get(entry.target.id);
        if (link && entry.isIntersecting) {
          links.forEach((a) => a.removeAttribute("aria-current"));
          link.setAttribute("aria-current", "true");
        }
      });
    }, { rootMargin: "0px 0px -70% 0px" });
    all("section.function").forEach((s) => seen.observe(s));
  }
  reveal();
})();
