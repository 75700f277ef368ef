"""Published figures come out as they were published, from pinned files; what cannot be had is said and never made up.

With ``GAVEL_PUBLISHED`` naming a folder of copies (``OWNER/NAME/PATH``) every figure is computed from them.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import pytest
from tests.support.runs import gavel

from gavel.envs.published import files as published_files
from gavel.envs.published.conversations import recount_table
from gavel.envs.published.files import PublishedFiles, read_pins
from gavel.envs.published.instructions import recount_ifbench
from gavel.envs.published.raters import compute_fleiss_kappa, compute_multi_ac1, compute_raw_agreement
from gavel.envs.published.studies import STUDIES
from gavel.envs.published.win_rates import compute_win_rate
from gavel.models.pinned import AssetError, Pin

COPIES = os.environ.get("GAVEL_PUBLISHED")
needs_copies = pytest.mark.skipif(
    not COPIES, reason="GAVEL_PUBLISHED names no folder with copies of the pinned files (OWNER/NAME/PATH)"
)


def copy_of(folder: Path, files: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> PublishedFiles:
    """Files of the test's own in place of the pinned ones, pinned alike."""
    pins = {}
    for name, text in files.items():
        path = folder / "copies" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        digest = hashlib.sha256(text.encode()).hexdigest()
        pins[name] = Pin(name, digest, len(text.encode()), ())
    monkeypatch.setattr(published_files, "read_pins", lambda: pins)
    return PublishedFiles(folder / "copies", folder / "cache", offline=True)


@needs_copies
@pytest.mark.parametrize("name", STUDIES)
def test_every_figure_of_a_study_is_the_published_one(name: str, tmp_path: Path) -> None:
    figures = STUDIES[name].compute(PublishedFiles(Path(str(COPIES)), tmp_path, offline=True))
    assert figures
    assert [figure for figure in figures if figure.equal is False] == []


def test_every_pin_names_a_file_at_a_commit_to_the_byte() -> None:
    pins = read_pins()
    assert len(pins) > 1000
    assert all(pin.size > 0 and len(pin.sources) == 1 for pin in pins.values())
    assert {name.split("/")[0] for name in pins} >= {"allenai", "princeton-nlp", "ScalerLab"}


def test_a_file_that_is_not_the_pinned_one_is_refused_and_one_that_is_not_there_said(tmp_path: Path) -> None:
    name = "allenai/IFBench/eval/eval_results_strict.jsonl"
    with pytest.raises(AssetError):
        PublishedFiles(tmp_path, tmp_path / "cache", offline=True).read_text(name)
    (tmp_path / name).parent.mkdir(parents=True)
    (tmp_path / name).write_text("{}\n")
    with pytest.raises(AssetError, match=r"SHA-256|bytes"):
        PublishedFiles(tmp_path, tmp_path / "cache", offline=True).read_text(name)


def test_a_prompt_counts_where_each_of_its_instructions_was_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [[True], [True, False], [True, True], [False]]
    text = "".join(json.dumps({"follow_instruction_list": row}) + "\n" for row in rows)
    names = [f"allenai/IFBench/eval/eval_results_{kind}.jsonl" for kind in ("strict", "loose")]
    figures = recount_ifbench(copy_of(tmp_path, dict.fromkeys(names, text), monkeypatch))
    assert [figure.computed for figure in figures[:2]] == ["2/4 = 50.00 %", "4/6 = 66.67 %"]
    assert not any(figure.equal for figure in figures)


def test_a_cell_that_is_not_that_of_its_percentages_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """(50 + 60 / 2) * 0.9^2 = 64.8; a dimension of no harm and 20 % best is (50 + 10) = 60."""
    head = "Model,Overall VERA-MH v1 Score,Overall %HPH,Overall %BP,A VERA-MH v1 Score,A %HPH,A %BP\n"
    name = next(name for name in read_pins() if name.endswith("_detailed.csv"))
    for score, near in (("60.1", "1/1"), ("60.2", "0/1")):
        folder = tmp_path / score
        files = copy_of(folder, {name: f"{head}M,64.8,10.0,60.0,{score},0.0,20.0\n"}, monkeypatch)
        assert [figure.computed for figure in recount_table(files)] == [near, "1/1"]


def test_the_agreement_of_several_raters_is_that_worked_by_hand() -> None:
    """Four units of three ratings, all equal in two, two of three in the others: (1 + 1 + 1/3 + 1/3) / 4 = 2/3.

    The share of a is (3 + 2 + 0 + 1) / 12 = 1/2. By chance: Fleiss 1/4 + 1/4, AC1 2 * 1/4 / 1.
    """
    units = [["a", "a", "a"], ["a", "a", "b"], ["b", "b", "b"], ["a", "b", "b"]]
    assert compute_raw_agreement(units) == pytest.approx(2 / 3)
    assert compute_fleiss_kappa(units) == pytest.approx(1 / 3)
    assert compute_multi_ac1(units) == pytest.approx(1 / 3)


def test_a_win_rate_counts_draws_as_halves_and_what_is_between_as_it_is() -> None:
    """1, 0.5, 0.5, 0 and 0.9: mean 0.58; deviations squared 0.1764 + 2 * 0.0064 + 0.3364 + 0.1024 = 0.628, over 4."""
    rate, error = compute_win_rate([2.0, 1.5, 0.0, 1.0, 1.9])
    assert rate == pytest.approx(58.0)
    assert error == pytest.approx(100 * (0.628 / 4 / 5) ** 0.5)


async def test_the_command_says_what_it_cannot_have_and_refuses_a_study_that_is_not_there(tmp_path: Path) -> None:
    done = await gavel("reproduce", "all", "assets.offline=true", f"assets.cache={tmp_path}/c")
    assert done.code == 3, "nothing was computed, so nothing is equal"
    for name in STUDIES:
        assert f"{name}: its files cannot be had" in done.out
    wrong = await gavel("reproduce", "judgebnch")
    assert wrong.code == 2
    assert "did you mean judgebench" in wrong.err


@needs_copies
async def test_the_command_prints_each_figure_beside_the_published_one(tmp_path: Path) -> None:
    done = await gavel("reproduce", "judgebench", f"data={COPIES}", f"assets.cache={tmp_path}/c", "assets.offline=true")
    assert done.code == 0, done.err
    assert "65.71" in done.out
    assert "DIFFERENT" not in done.out
