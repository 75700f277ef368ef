"""The page on failures says what the code does."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest
from tests.support.fault_table import BEGIN, END, TABLE, section

from gavel.envs.failure_policy import FailurePolicy
from gavel.envs.types import Digests, Outcome, Result, Reward, Status, Timing, Transcript
from gavel.models.codec import dump
from gavel.models.failures import KINDS, MAX_ATTEMPTS_PER_ROW, Failure, FailureKind

PAGE = Path(__file__).parents[1] / "docs" / "failures.md"
KIND_HEADER = "| kind | what happened | again within the call | again on resume |"


@pytest.fixture(scope="module")
def page() -> str:
    return PAGE.read_text(encoding="utf-8")


def table(page: str, header: str) -> list[str]:
    lines = page.splitlines()
    start = lines.index(header) + 2
    return lines[start : lines.index("", start)]


def test_the_page_holds_the_table_of_kinds_as_it_is_in_the_code(page: str) -> None:
    word = {True: "yes", False: "no"}
    expected = [
        f"| `{kind}` | {rule.meaning} | {word[rule.retried_in_call]} | {word[rule.retried_on_resume]} |"
        for kind, rule in KINDS.items()
    ]
    assert table(page, KIND_HEADER) == expected


def test_every_kind_has_a_rule() -> None:
    assert list(KINDS) == list(FailureKind)


def test_the_page_names_every_status_and_no_other(page: str) -> None:
    rows = table(page, "| status | what happened | where it stands | reward |")
    assert [row.split("`")[1] for row in rows] == list(get_args(Status))


def test_the_page_gives_the_defaults_of_the_failure_policy(page: str) -> None:
    policy = FailurePolicy()
    named = dict(re.findall(r"`failure\.(\w+)` \(([\d.]+)\)", page))
    assert named == {
        "window": str(policy.window),
        "minimum": str(policy.minimum),
        "max_ungraded_fraction": f"{policy.max_ungraded_fraction:g}",
    }
    assert f"| `{policy.name}` (default) |" in page


def test_the_page_gives_the_number_of_attempts_over_all_resumes(page: str) -> None:
    assert f"fewer than {MAX_ATTEMPTS_PER_ROW} attempts over all resumes" in page
    assert set(re.findall(r"(\d+) attempts", page)) == {str(MAX_ATTEMPTS_PER_ROW)}


def test_the_page_lists_the_exit_codes(page: str) -> None:
    codes = [row.split("|")[1].strip() for row in table(page, "| exit code | meaning |")]
    assert codes == ["0", "2", "3", "4", "130"]


def test_the_page_holds_the_table_of_faults_that_the_tests_play(page: str) -> None:
    shown = page.partition(BEGIN)[2].partition(END)[0]
    assert shown.strip() == section(), "run: python -m tests.support.fault_table"


def test_the_table_of_faults_names_kinds_there_are_and_agrees_with_the_table_of_kinds() -> None:
    for row in TABLE:
        kind = FailureKind(row.kind)
        assert not row.again or KINDS[kind].retried_in_call, row.name


def _row(task_id: str, attempt: int, kind: FailureKind | None) -> Result:
    failure = None if kind is None else Failure(kind, "judge", "no connection")
    return Result(
        task_id=task_id,
        task_digest="sha256:0",
        rollout_index=0,
        attempt=attempt,
        status="graded" if failure is None else "judge_error",
        transcript=Transcript(),
        outcome=Outcome("correct" if failure is None else "", failure=failure),
        reward=Reward(1.0, {}) if failure is None else None,
        receipts=(),
        timing=Timing(0.0, 0.0, 0.0, 0.0),
        digests=Digests("sha256:0", {}),
        metadata={},
        fallback_reward=None if failure is None else 0.0,
    )


def test_the_example_counts_what_is_still_missing_in_a_run_folder(page: str, tmp_path: Path) -> None:
    unreachable = FailureKind.TRANSPORT_UNREACHABLE
    errors = [_row("a", 1, FailureKind.JUDGE_UNPARSEABLE), _row("b", 1, unreachable), _row("a", 2, unreachable)]
    (tmp_path / "results.jsonl").write_bytes(dump(_row("b", 2, None)) + b"\n")
    (tmp_path / "errors.jsonl").write_bytes(b"".join(dump(row) + b"\n" for row in errors))
    (example,) = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    names: dict[str, Any] = {}
    exec(example, names)  # the page's own code
    still_missing: Callable[[Path], Counter[str]] = names["still_missing"]
    assert still_missing(tmp_path) == Counter({"transport_unreachable": 1})
    assert f"`{still_missing(tmp_path)!r}`" in page
