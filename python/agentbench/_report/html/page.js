// Draws the charts, those in view first and all soon after, in colours for a light or a dark screen and for paper.
// Everything else of the page needs no script.
(() => {
  // Grids are seen on either: paper may get what a dark screen showed.
  const grid = "rgba(128, 140, 155, 0.24)"
  const light = { text: "#4a5563", line: "#9aa5b1", grid }
  const dark = { text: "#a9b4c1", line: "#6b7785", grid }
  const screen = window.matchMedia("(prefers-color-scheme: dark)")
  const dress = (theme, documents) => {
    for (const document of documents) {
      for (const model of document._all_models.values()) {
        if (model.properties.axis_label_text_color) {
          model.setv({ axis_label_text_color: theme.text, major_label_text_color: theme.text })
          // An axis of names has no ticks.
          if (model.major_tick_line_color != null) model.setv({ major_tick_line_color: theme.line })
        } else if (model.properties.grid_line_color) {
          model.setv({ grid_line_color: theme.grid })
        }
      }
    }
  }
  const theme = () => (screen.matches ? dark : light)
  const state = document.documentElement.dataset
  const waiting = [...document.querySelectorAll("script[data-drawn-by]")]
  const draw = async (described) => {
    await window.Bokeh.embed.embed_item(JSON.parse(described.textContent), described.previousElementSibling)
    dress(theme(), window.Bokeh.documents.slice(-1))
  }
  // The next to draw: one in view or a screen away from it, else the first.
  const next = () => {
    const near = waiting.findIndex((described) => {
      const place = described.previousElementSibling.getBoundingClientRect()
      return place.bottom > -innerHeight && place.top < 2 * innerHeight
    })
    return { near: near >= 0, described: waiting.splice(Math.max(near, 0), 1)[0] }
  }
  const whenIdle = window.requestIdleCallback ?? ((then) => setTimeout(then, 0))
  const drawAll = async () => {
    while (waiting.length) {
      const { near, described } = next()
      if (!near) await new Promise((then) => whenIdle(then, { timeout: 200 }))
      await draw(described)
    }
    state.charts = "drawn"
  }
  // Paper is narrower than a screen: there each chart is a picture, painted anew in light colours, that fits.
  const MANY_ROWS = 4000
  const picture = (described) => {
    const [root] = JSON.parse(described.textContent).doc.roots
    const view = window.Bokeh.index[root.id]
    const rows = [...view.model.document._all_models.values()].map((model) => model.get_length?.() ?? 0)
    // A drawing of very many marks would be slow to print.
    const isSmall = rows.reduce((sum, n) => sum + n, 0) < MANY_ROWS
    const { canvas } = view.export(isSmall ? "svg" : "png")
    if (!isSmall) return Object.assign(new Image(), { src: canvas.toDataURL() })
    canvas.setAttribute("viewBox", `0 0 ${view.bbox.width} ${view.bbox.height}`)
    for (const size of ["width", "height"]) canvas.removeAttribute(size)
    return canvas
  }
  const unfinished = () => {
    const said = document.createElement("p")
    said.className = "missing"
    said.textContent = "Not drawn yet when this was printed; print again."
    return said
  }
  let papers = [], opened = []
  const toPaper = () => {
    opened = [...document.querySelectorAll("details:not([open])")]
    opened.forEach((part) => { part.open = true })
    dress(light, window.Bokeh?.documents ?? [])
    papers = [...document.querySelectorAll("script[data-drawn-by]")].map((described) => {
      const isDrawn = described.previousElementSibling.childElementCount > 0
      const paper = isDrawn ? picture(described) : unfinished()
      paper.classList.add("paper")
      described.after(paper)
      return paper
    })
  }
  const fromPaper = () => {
    papers.forEach((paper) => { paper.remove() })
    opened.forEach((part) => { part.open = false })
    now()
  }
  const now = () => dress(theme(), window.Bokeh?.documents ?? [])
  if (window.Bokeh) drawAll()
  screen.addEventListener("change", now)
  window.addEventListener("beforeprint", toPaper)
  window.addEventListener("afterprint", fromPaper)
})()
