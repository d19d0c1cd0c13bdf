// Colours of axes and grids for a light or a dark screen, and for paper. Everything else of the page needs no script.
(() => {
  // Grids are seen on either: paper may get what a dark screen showed.
  const grid = "rgba(128, 140, 155, 0.24)"
  const light = { text: "#4a5563", line: "#9aa5b1", grid }
  const dark = { text: "#a9b4c1", line: "#6b7785", grid }
  const screen = window.matchMedia("(prefers-color-scheme: dark)")
  const dress = (theme) => {
    for (const document of window.Bokeh?.documents ?? []) {
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
  const now = () => dress(screen.matches ? dark : light)
  // Bokeh draws once the page is whole.
  const whenDrawn = () => {
    if (window.Bokeh?.documents.length) now()
    else requestAnimationFrame(whenDrawn)
  }
  if (window.Bokeh) whenDrawn()
  screen.addEventListener("change", now)
  window.addEventListener("beforeprint", () => { dress(light); document.querySelectorAll("details").forEach((part) => { part.open = true }) })
  window.addEventListener("afterprint", now)
})()
