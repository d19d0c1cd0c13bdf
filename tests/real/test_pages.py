"""Reports' pages in a real browser: each figure is drawn, hovering tells of it, nothing overlaps or asks the network.

Screenshots go to the folder named by AGENTBENCH_SCREENSHOTS, for people to look at; else to pytest's own.
"""

from __future__ import annotations

import io
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import polars as pl
import pytest
from opened_pages import HEIGHT, NARROW, WALK, WIDE, Opened
from PIL import Image
from tests.python.scripted import Server, answers, called, said

import agentbench as library
from agentbench import FileCheck, Task, load
from agentbench.load import Fixed

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

TOOLTIPS = (
    "() => {"
    + WALK
    + """
  const shown = found(document, (part) => part.classList.contains("bk-Tooltip") && part.getBoundingClientRect().height)
  return shown.map((part) => found(part.shadowRoot, (inner) => /bk-tooltip-row/.test(inner.className))
    .map((inner) => inner.textContent).join(" "))
}"""
)
TIMELINE_X = """() => {
  const plot = Bokeh.documents.flatMap((document) => document.roots()).find((root) => root.name === "timeline")
  return [plot.x_range.start, plot.x_range.end]
}"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, library.Run]:
    """A replay, a search and a load shape on the embedded engine, live agents, and the bundled recording."""
    root = tmp_path_factory.mktemp("runs")
    with library.SimulatedEngine(speed="gpu-8b") as engine:
        replayed = library.replay(
            library.sample_trace(), url=engine.url, agents=4, duration_s=8.0, out=root / "replay", power="constant:300"
        )
        searched = library.capacity(
            library.sample_trace(), url=engine.url, slo=["ttft.p95<=2s", "speed.p25>=20"], max_agents=2, gpu_count=1,
            out=root / "capacity", min_steady_s=1.0, min_requests_per_agent=1,
        )  # fmt: skip
        shape = load.conversation("7k", users=3, turns=Fixed(3), output_tokens=Fixed(40))
        (step,) = load.run(
            load.of_conversations({"7k": shape}), shape="conversation", url=engine.url, out=root / "load"
        ).rows
    return {
        "replay": replayed,
        "capacity": searched,
        "load": step.run,
        "agent": worked(root / "agent"),
        "recording": library.Run.open(library.sample_trace()),
    }


def worked(out: Path) -> library.Run:
    """Tasks of live agents: one is completed, of one the model says so, one has no check."""
    write = ("write", {"path": "a.txt", "content": "hello"})

    def script(body: dict[str, Any]) -> Any:
        if body["messages"][1]["content"] == "lie":
            return said("Done.")
        return [called(write), called(("shell", {"command": "sleep 0.1"})), said("Done.")][answers(body)]

    tasks = [
        Task("hello", "write", checks=(FileCheck("a.txt", equals="hello"),)),
        Task("lie", "lie", checks=(FileCheck("a.txt"),)),
        Task("unchecked", "write"),
    ]
    with Server(script, pause_s=0.02).running() as server:
        return library.run_agents(
            tasks, url=server.url, out=out, sandbox="none", power="none", repeat=2, concurrency=3, max_steps=3
        )


@pytest.fixture(scope="module")
def pages(runs: dict[str, library.Run], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Their pages, one of a comparison, one of questions alone, and one of ten thousand requests."""
    root = tmp_path_factory.mktemp("pages")
    written = {name: library.report(run).write_html(root / f"{name}.html") for name, run in runs.items()}
    written["compare"] = root / "compare.html"
    written["compare"].write_text(library.compare(runs["replay"], runs["capacity"]).to_html())
    (written["analysis"],) = library.analyze(library.sample_trace()).save(root / "analysis", csv=False, png=False)
    written["large"] = library.report(large(runs["replay"], root / "large")).write_html(root / "large.html")
    return written


def large(run: library.Run, to: Path, requests: int = 10_000) -> library.Run:
    """The replay's requests over and over, each copy later by the run's length and by agents of its own."""
    import shutil

    shutil.copytree(run.path, to)
    (to / "summary.json").unlink()
    sent = run.requests().to_polars()
    agents = int(sent["agent_id"].max()) + 1  # type: ignore[arg-type]
    copies = -(-requests // len(sent))
    many = [
        sent.with_columns((pl.col("agent_id") + copy % 10 * agents).cast(pl.UInt32), pl.col("sent_at_ms") + copy * 97.0)
        for copy in range(copies)
    ]
    pl.concat(many).head(requests).write_parquet(to / "requests.parquet")
    return library.Run.open(to)


@pytest.fixture
def screenshots(tmp_path: Path) -> Path:
    """Where pictures go."""
    folder = Path(os.environ.get("AGENTBENCH_SCREENSHOTS", tmp_path))
    folder.mkdir(parents=True, exist_ok=True)
    return folder


VIEWS = [(WIDE, "light"), (WIDE, "dark"), (NARROW, "light")]


@pytest.mark.parametrize("name", ["replay", "capacity", "load", "agent", "recording", "analysis", "compare", "large"])
@pytest.mark.parametrize(("width", "scheme"), VIEWS)
def test_a_page_is_drawn_whole(
    browser: Browser, pages: dict[str, Path], screenshots: Path, name: str, width: int, scheme: str
) -> None:
    with Opened(browser, pages[name], width, scheme) as opened:
        opened.check_whole(pages[name], width)
        opened.page.screenshot(path=screenshots / f"{name}-{width}-{scheme}.png", full_page=True)


@pytest.mark.parametrize("name", ["replay", "recording"])
def test_hovering_over_the_timeline_tells_of_a_request(browser: Browser, pages: dict[str, Path], name: str) -> None:
    with Opened(browser, pages[name], WIDE, "light") as opened:
        told = hovered(opened.page, "timeline")
        assert any("ISL" in text and "tokens" in text and "TTFT" in text for text in told), told


def test_hovering_over_dots_and_levels_tells_of_them(browser: Browser, pages: dict[str, Path]) -> None:
    with Opened(browser, pages["capacity"], WIDE, "light") as opened:
        assert any("verdict" in text for text in hovered(opened.page, "capacity-work"))
        assert any("OSL" in text for text in hovered(opened.page, "ttft_s-context"))


def test_hovering_over_the_bars_of_a_question_tells_their_values(browser: Browser, pages: dict[str, Path]) -> None:
    calls = library.Run.open(library.sample_trace()).tool_calls().to_polars()["name"]
    share_pct = {name: (calls == name).sum() / len(calls) * 100 for name in calls.unique()}
    for name in ("analysis", "recording"):
        with Opened(browser, pages[name], WIDE, "dark") as opened:
            told = [text for text in hovered(opened.page, "tools-0") if "of calls" in text]
        assert told
        for text in told:
            tool, shown = cast("re.Match[str]", re.search(r"(\w+)\s*of calls:?\s*([\d.]+) %", text)).groups()
            assert float(shown) == pytest.approx(share_pct[tool], abs=0.001), text


def test_hovering_over_a_line_of_a_question_tells_a_point_of_it(browser: Browser, pages: dict[str, Path]) -> None:
    turns = library.Run.open(library.sample_trace()).turns().to_polars()
    osl = turns.filter((pl.col("outcome") == "ok") & (pl.col("kind") != "utility"))["osl"].to_numpy()
    with Opened(browser, pages["analysis"], WIDE, "light") as opened:
        told = [text for text in hovered(opened.page, "tokens-0") if "OSL" in text]
    points = [re.search(r"tokens:?\s*([\d,.]+).*at most x:?\s*([\d.]+) %", text) for text in told]
    assert any(points), told
    for point in points:
        assert point
        tokens, pct = float(point[1].replace(",", "")), float(point[2])
        # The line goes straight up at a value: from the share below it to the share up to it.
        below, upto = (np.mean(osl < tokens) * 100, np.mean(osl <= tokens) * 100)
        assert below - 0.001 <= pct <= upto + 0.001, point[0]


def test_hovering_over_an_engines_gauge_tells_its_steps(browser: Browser, pages: dict[str, Path]) -> None:
    with Opened(browser, pages["replay"], WIDE, "light") as opened:
        told = hovered(opened.page, "running")
    assert any(re.search(r"(running|waiting):?\s*[0-4]\b", text) for text in told), told


def test_hovering_over_a_task_tells_what_became_of_it(browser: Browser, pages: dict[str, Path]) -> None:
    with Opened(browser, pages["agent"], WIDE, "light") as opened:
        told = hovered(opened.page, "tasks")
    assert any(re.search(r"hello.*completed, by the check:?\s*2\b", text) for text in told), told


@pytest.mark.parametrize("name", ["analysis", "recording", "agent"])
def test_no_chart_is_a_bright_box_on_a_dark_screen(browser: Browser, pages: dict[str, Path], name: str) -> None:
    bright = {}
    for scheme in ("light", "dark"):
        with Opened(browser, pages[name], WIDE, scheme) as opened:
            for figure in opened.page.locator("figure[data-chart]").all():
                pixels = np.asarray(Image.open(io.BytesIO(figure.screenshot())).convert("L"))
                bright[scheme, figure.get_attribute("data-chart")] = (pixels > 200).mean()
            assert opened.page.locator("img").count() == 0
    assert {share < 0.1 for (scheme, _), share in bright.items() if scheme == "dark"} == {True}, bright
    assert {share > 0.4 for (scheme, _), share in bright.items() if scheme == "light"} == {True}, bright


def test_a_tooltip_is_dark_on_a_dark_screen(browser: Browser, pages: dict[str, Path]) -> None:
    shade = "() => [...document.querySelectorAll('.bk-Tooltip')].map((it) => getComputedStyle(it).backgroundColor)"
    with Opened(browser, pages["analysis"], WIDE, "dark") as opened:
        plot = opened.page.locator('figure[data-chart="tools-0"] .plot')
        plot.scroll_into_view_if_needed()
        box = plot.bounding_box()
        assert box
        shades: list[str] = []
        for down in range(1, 40):
            opened.page.mouse.move(box["x"] + box["width"] * 0.25, box["y"] + box["height"] * down / 40)
            shades += opened.page.evaluate(shade)
        assert set(shades) == {"rgb(26, 32, 41)"}


def hovered(page: Page, chart: str) -> list[str]:
    """What tooltips say while the pointer goes over a chart."""
    plot = page.locator(f'figure[data-chart="{chart}"] .plot')
    plot.scroll_into_view_if_needed()
    box = plot.bounding_box()
    assert box
    told: list[str] = []
    for down in range(1, 20):
        for right in range(4, 40):
            page.mouse.move(box["x"] + box["width"] * right / 40, box["y"] + box["height"] * down / 20)
            told += page.evaluate(TOOLTIPS)
        if told:
            break
    return told


def test_dragging_over_the_timeline_zooms(browser: Browser, pages: dict[str, Path]) -> None:
    with Opened(browser, pages["replay"], WIDE, "light") as opened:
        page = opened.page
        before: list[float] = page.evaluate(TIMELINE_X)
        plot = page.locator('figure[data-chart="timeline"] .plot')
        plot.scroll_into_view_if_needed()
        box = plot.bounding_box()
        assert box
        y = box["y"] + box["height"] / 2
        page.mouse.move(box["x"] + box["width"] * 0.4, y)
        page.mouse.down()
        page.mouse.move(box["x"] + box["width"] * 0.6, y, steps=8)
        page.mouse.up()
        page.wait_for_function(f"({TIMELINE_X})()[1] < {before[1]}", timeout=10_000)
        after: list[float] = page.evaluate(TIMELINE_X)
        assert after[1] - after[0] == pytest.approx((before[1] - before[0]) * 0.2, rel=0.15)


def test_a_dark_screen_gets_other_colours_and_paper_light_ones(browser: Browser, pages: dict[str, Path]) -> None:
    colours = """() => {
      const plot = Bokeh.documents[0].roots()[0]
      return [getComputedStyle(document.body).backgroundColor, plot.below[0].axis_label_text_color]
    }"""
    with (
        Opened(browser, pages["replay"], WIDE, "light") as light,
        Opened(browser, pages["replay"], WIDE, "dark") as dark,
    ):
        settle = "() => Bokeh.documents[0].roots()[0].below[0].axis_label_text_color !== '#444444'"
        seen: list[Any] = []
        for opened in (light, dark):
            opened.page.wait_for_function(settle)
            seen.append(opened.page.evaluate(colours))
        assert seen[0] == ["rgb(255, 255, 255)", "#4a5563"]
        assert seen[1] == ["rgb(18, 22, 29)", "#a9b4c1"]
        dark.page.emulate_media(media="print")
        assert dark.page.evaluate(colours)[0] == "rgb(255, 255, 255)"
        assert len(dark.page.pdf()) > 50_000


def test_paper_gets_every_chart_as_a_light_picture_that_fits(browser: Browser, pages: dict[str, Path]) -> None:
    told = """() => [...document.querySelectorAll("figure[data-chart]")]
      .filter((figure) => figure.querySelector("script"))
      .map((figure) => {
        const [picture, ...others] = figure.querySelectorAll(".paper")
        const box = picture.getBoundingClientRect()
        const inks = [...picture.querySelectorAll("text")].map((text) => text.getAttribute("fill"))
        const place = figure.querySelector("script").previousElementSibling
        return {
          chart: figure.dataset.chart, kind: picture.tagName, alone: others.length === 0, inks: [...new Set(inks)],
          fits: box.width > 100 && box.height > 40 && box.right <= figure.getBoundingClientRect().right,
          hidden: getComputedStyle(place).display === "none",
        }
      })"""
    for name in ("analysis", "large"):
        with Opened(browser, pages[name], WIDE, "dark") as opened:
            page = opened.page
            page.emulate_media(media="print", color_scheme="dark")
            page.set_viewport_size({"width": 700, "height": HEIGHT})
            page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
            found = page.evaluate(told)
            assert len(found) > 10
            assert all(it["alone"] and it["fits"] and it["hidden"] for it in found), found
            kinds = {it["chart"]: it["kind"] for it in found}
            # A drawing of ten thousand bars would be slow to print.
            assert set(kinds.values()) == ({"svg"} if name == "analysis" else {"svg", "IMG"})
            assert kinds.get("timeline", "IMG") == "IMG"
            # Of axes in the light colour, of words beside bars in one for either.
            inks = {ink for it in found for ink in it["inks"]} - {"none"}
            assert inks == ({"#4a5563", "rgb(111,123,136)"} if name == "analysis" else {"#4a5563"})
            page.evaluate("window.dispatchEvent(new Event('afterprint'))")
            assert page.locator(".paper").count() == 0
            assert page.locator("details[open]").count() == 0
            assert opened.errors == []
