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
        } else if (model.type === "Text") {
          model.setv({ text_color: { value: theme.text } })
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
  const now = () => dress(theme(), window.Bokeh?.documents ?? [])
  if (window.Bokeh) drawAll()
  screen.addEventListener("change", now)
  window.addEventListener("beforeprint", () => {
    dress(light, window.Bokeh?.documents ?? [])
    document.querySelectorAll("details").forEach((part) => { part.open = true })
  })
  window.addEventListener("afterprint", now)
})()
