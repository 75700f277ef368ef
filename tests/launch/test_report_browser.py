"""The report in a real browser: nothing hostile runs, filters work, 100,000 rows do not hold it up, the server's page
follows.
"""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from tests.launch.report_support import HOSTILE, HOSTILE_ID, enlarge, hostile_run
from tests.support.browser import Browser, Page, needs_chromium
from tests.support.runs import gavel, start, without_digests

READY = "document.documentElement.dataset.ready === 'yes'"
ROWS = "[...document.querySelectorAll('.row')].length"
COUNT = "document.querySelector('.count').textContent"


async def to(page: Page, place: str) -> None:
    """Go to a place of the page by its address."""
    await page.run(f"location.hash = {place!r}")
    await page.until(f"location.hash === {place!r}")


@needs_chromium
async def test_nothing_a_model_said_runs_and_nothing_is_fetched(tmp_path: Path) -> None:
    run = await hostile_run(tmp_path)
    async with Browser.start(tmp_path) as browser:
        page = await browser.open((run / "report.html").as_uri())
        await page.until(READY)
        await to(page, "#/rows")
        await page.until(f"{ROWS} === 13")
        assert HOSTILE_ID in await page.run("document.querySelector('.list').textContent")
        number = await page.run(
            f"[...document.querySelectorAll('.row')].find(row => "
            f"row.textContent.includes({HOSTILE_ID!r})).dataset.number"
        )
        await to(page, f"#/row/{number}")
        await page.until("document.querySelector('.bubble.ours') !== null")
        assert HOSTILE in await page.run("document.querySelector('.bubble.ours .text').textContent")
        assert await page.run("document.querySelectorAll('#app script, #app img').length") == 0
        assert page.dialogs == 0
        assert page.requests == [page.url]
        assert page.errors == []


@needs_chromium
async def test_filters_search_pages_and_keys(tmp_path: Path) -> None:
    run = await hostile_run(tmp_path, 120)
    async with Browser.start(tmp_path) as browser:
        page = await browser.open((run / "report.html").as_uri())
        await page.until(READY)
        assert "30" in await page.run("document.querySelector('.tiles').textContent")  # ungraded
        await page.press("r")
        await page.until(f"{ROWS} === 50")
        await page.press("n")
        await page.until("document.querySelector('.pager').textContent.includes('page 2 of 3')")
        for place, count in (
            ("#/rows?label=incorrect", 30),
            ("#/rows?kind=judge_unparseable", 30),
            ("#/rows?check=verdict&mark=1", 30),
            ("#/rows?low=0.4&high=0.6", 30),
            ("#/rows?q=kilometre+77+of", 1),
            ("#/rows?label=correct&q=nowhere", 0),
        ):
            await to(page, place)
            await page.until(f"{COUNT}.startsWith('{count} of 121')")
        await to(page, "#/rows?label=correct")
        await page.until(f"{COUNT}.startsWith('30 of')")
        await page.press("/")
        await page.until("document.activeElement.name === 'q'")
        await page.send("Input.insertText", text="kilometre 116")
        await page.until(f"{COUNT}.startsWith('1 of')")
        await page.press("Escape")
        await page.press("j")
        await page.press("Enter")
        await page.until("document.querySelector('#story h1')?.textContent.includes('q-116')")
        assert "1 of 1" in await page.run("document.querySelector('.crumbs').textContent")
        await page.press("Escape")
        await page.until(f"{COUNT}.startsWith('1 of')")


@needs_chromium
@pytest.mark.parametrize(("width", "dark"), [(1280, False), (1280, True), (375, False)])
async def test_pages_fit_the_screen_and_contrast_in_light_and_dark(tmp_path: Path, width: int, dark: bool) -> None:
    run = await hostile_run(tmp_path)
    async with Browser.start(tmp_path) as browser:
        page = await browser.open((run / "report.html").as_uri(), width=width, dark=dark)
        await page.until(READY)
        for place in ("#/", "#/rows", "#/row/0"):
            await to(page, place)
            assert await page.run("document.documentElement.scrollWidth") <= width
        colours = await page.run(
            "(({ color }) => [color, "
            "getComputedStyle(document.documentElement).backgroundColor])(getComputedStyle(document.body))"
        )
        ink, ground = (sum(int(part) for part in re.findall(r"\d+", colour)[:3]) for colour in colours)
        assert (ink > ground + 300) if dark else (ground > ink + 300)


@needs_chromium
async def test_a_hundred_thousand_rows_open_within_3_s_and_filter_within_200_ms(tmp_path: Path) -> None:
    run = enlarge(await hostile_run(tmp_path), tmp_path / "many", 100_000)
    done = await gavel("report", str(run), timeout=120)
    assert done.code == 0, done.err
    assert (run / "report.html").stat().st_size < 60_000_000
    async with Browser.start(tmp_path) as browser:
        begun = time.monotonic()
        page = await browser.open((run / "report.html").as_uri())
        await page.until(READY)
        assert time.monotonic() - begun < 3
        for place, count in (
            ("#/rows?label=correct&slice.domain=law", "11,11"),
            ("#/rows?q=row-4242", "11"),
            ("#/rows?slice.domain=law", "33,334"),
        ):
            await to(page, place)
            await page.until(f"{COUNT}.startsWith('{count}') && {COUNT}.includes(' of 100,000 rows')")
            assert float(await page.run("document.documentElement.dataset.filterMs")) < 200


@asynccontextmanager
async def viewed(run: Path) -> AsyncIterator[str]:
    """Run ``gavel view``; yield its address."""
    process = await start("view", str(run))
    try:
        assert process.stdout is not None
        line = (await asyncio.wait_for(process.stdout.readline(), 60)).decode()
        found = re.search(r"http://127\.0\.0\.1:\d+/", line)
        assert found is not None, line
        yield found[0]
    finally:
        process.terminate()
        await process.communicate()
    assert process.returncode == 130


async def test_the_viewer_answers_this_machine_alone(tmp_path: Path) -> None:
    run = await hostile_run(tmp_path, 4)
    async with viewed(run) as url, aiohttp.ClientSession() as session:
        async with session.get(url, headers={"Host": "evil.example"}) as answer:
            assert answer.status == 403
        async with session.get(url, headers={"Host": "LocalHost"}) as answer:
            assert answer.status == 200
        reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rstrip("/").rpartition(":")[2]))
        writer.write(b"GET / HTTP/1.0\r\n\r\n")  # names no host
        assert b" 403 " in await reader.readline()
        writer.close()
        async with session.get(url) as answer:
            assert answer.status == 200
            assert "connect-src 'self'" in answer.headers["Content-Security-Policy"]
        for path, status in (
            ("story/0", 200),
            ("story/99", 404),
            ("story/x", 400),
            ("changes?since=0", 200),
            ("changes", 400),
            ("config.yaml", 404),
        ):
            async with session.get(url + path) as answer:
                assert answer.status == status, path
        shutil.rmtree(run)  # or moved away
        async with session.get(url + "story/0") as answer:
            assert answer.status == 500
            assert str(run) in await answer.text()


@needs_chromium
async def test_the_viewer_follows_a_run_that_grows(tmp_path: Path) -> None:
    run = await hostile_run(tmp_path)
    lines = (run / "results.jsonl").read_bytes().splitlines(keepends=True)
    (run / "results.jsonl").write_bytes(b"".join(lines[:2]))
    async with viewed(run) as url, Browser.start(tmp_path) as browser:
        page = await browser.open(url)
        await page.until(READY)
        graded = "document.querySelector('.tile b').textContent"
        assert await page.run(graded) == "2"
        with (run / "results.jsonl").open("ab") as file:
            file.write(b"".join(lines[2:]))
        await page.until(f"{graded} === '9'")
        await to(page, "#/row/1")
        await page.until("document.querySelector('.bubble') !== null")
        assert page.dialogs == 0
        assert page.errors == []


@needs_chromium
async def test_a_comparison_puts_changed_rows_first_and_their_texts_side_by_side(tmp_path: Path) -> None:
    run = await hostile_run(tmp_path)
    await gavel("rescore", str(run), "reward=omniscience", f"into={tmp_path / 'other'}")
    results = tmp_path / "other" / "results.jsonl"
    stored = [json.loads(line) for line in without_digests(results.read_text()).split("\n") if line]
    right = next(row for row in stored if row["outcome"]["label"] == "correct")
    wrong = next(row for row in stored if row["outcome"]["label"] == "incorrect")
    right["outcome"]["label"], right["reward"] = "incorrect", wrong["reward"]
    results.write_text("".join(f"{json.dumps(row)}\n" for row in stored))
    done = await gavel("compare", str(run), str(tmp_path / "other"), f"out={tmp_path / 'out'}")
    assert done.code == 0, done.err
    async with Browser.start(tmp_path) as browser:
        overview = await browser.open((tmp_path / "out" / "compare.html").as_uri())
        await overview.until(READY)
        scales = await overview.run(
            "[...document.querySelectorAll('.line.axis .ends')].map((one) => one.textContent).join('|')"
        )
        assert len(scales.split("|")) == 2, "one for the summary of the runs, one for the panel of the run"
        assert len(set(scales.split("|"))) == 1, "the same scale in every panel"
        assert "Mean reward of each run" in await overview.run("document.querySelector('h2').textContent")
        page = await browser.open((tmp_path / "out" / "compare.html").as_uri() + "#/compare")
        await page.until(READY)
        assert "incorrect" in await page.run("document.querySelector('.row .over').textContent")
        assert await page.run(f"document.querySelector('.row .over').textContent.includes('→') && {ROWS}") == 13
        await to(page, "#/compare/0")
        await page.until("document.querySelectorAll('.bubble.ours').length === 2")
        await to(page, "#/compare?flips=yes")
        await page.until(f"{ROWS} === 1")
        assert page.dialogs == 0
        assert page.errors == []
