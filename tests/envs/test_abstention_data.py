"""The shipped questions and labelled answers of the abstention environment keep the promises of their data card."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from decimal import Decimal
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

import orjson
import pytest

from gavel.envs.types import Task
from gavel.models.codec import decode, dump, load, record

DOMAINS = {"law", "health", "software", "general"}
LABEL_OF_KIND = {
    "exact": "correct",
    "equivalent": "correct",
    "verbose": "correct",
    "number_ok": "correct",
    "name_typo": "correct",
    "surname_only": "correct",
    "wrong": "incorrect",
    "near_miss": "incorrect",
    "incomplete": "incorrect",
    "number_off": "incorrect",
    "hedge": "incorrect",
    "abstain_explicit": "abstained",
    "abstain_implicit": "abstained",
}


@record
class Item:
    question: str
    reference: str
    answer: str
    label: Literal["correct", "incorrect", "abstained"]
    kind: str
    domain: Literal["law", "health", "software", "general"]
    source: str
    labelled_by: str
    reviewed_by: str | None


@record
class Target:
    question: str
    reference: str


def lines(name: str) -> list[bytes]:
    data = (files("gavel.envs") / "abstention" / "data" / name).read_bytes()
    assert data.endswith(b"\n")
    return data.splitlines()


@pytest.fixture(scope="module")
def tasks() -> list[Task]:
    return [
        load(Task, orjson.loads(line), where=f"samples.jsonl:{n}") for n, line in enumerate(lines("samples.jsonl"), 1)
    ]


@pytest.fixture(scope="module")
def items() -> list[Item]:
    return [decode(Item, line, where=f"calibration.jsonl:{n}") for n, line in enumerate(lines("calibration.jsonl"), 1)]


def words(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.casefold()))


def holds(text: str, part: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(part.casefold())}(?!\w)", text.casefold()) is not None


def clusters(items: list[Item]) -> dict[str, list[Item]]:
    found: dict[str, list[Item]] = defaultdict(list)
    for item in items:
        found[item.question].append(item)
    return found


def test_samples_are_24_with_six_in_each_of_the_four_domains(tasks: list[Task]) -> None:
    assert Counter(task.metadata["domain"] for task in tasks) == dict.fromkeys(DOMAINS, 6)


def test_sample_ids_are_unique_and_name_their_domain(tasks: list[Task]) -> None:
    numbered = [f"sample-{domain}-{n:02d}" for domain in ("law", "health", "software", "general") for n in range(1, 7)]
    assert [task.task_id for task in tasks] == numbered
    assert [task.metadata["domain"] for task in tasks] == [name.split("-")[1] for name in numbered]
    assert len({task.digest for task in tasks}) == len(tasks)


def test_samples_are_stored_byte_for_byte_as_the_codec_writes_them(tasks: list[Task]) -> None:
    assert [dump(task) for task in tasks] == lines("samples.jsonl")


def test_each_sample_asks_its_targets_question_of_the_abstention_verifier(tasks: list[Task]) -> None:
    for task in tasks:
        target = decode(Target, task.target, where=task.task_id, prefix="target")
        assert (task.env, task.verifier) == ("abstention", "nemo_abstention_v1/abstention")
        assert [message.role for message in task.messages] == ["system", "user"]
        assert task.messages[1].content == target.question
        assert task.metadata["judge_query"] == [{"role": m.role, "content": m.content} for m in task.messages]
        assert (task.metadata["licence"], task.metadata["source"]) == ("CC0-1.0", "gavel")


def test_samples_tell_the_policy_how_to_answer_and_how_to_abstain(tasks: list[Task]) -> None:
    systems = {task.messages[0].content for task in tasks}
    assert len(systems) == 1
    assert r"\boxed{[IDK]}" in systems.pop()


def test_no_sample_gives_its_reference_away_in_its_messages(tasks: list[Task]) -> None:
    assert not [
        task.task_id for task in tasks for message in task.messages if holds(message.content, task.target["reference"])
    ]


def test_calibration_holds_at_least_160_answers_and_40_per_domain(items: list[Item]) -> None:
    per_domain = Counter(item.domain for item in items)
    assert len(items) >= 160
    assert set(per_domain) == DOMAINS
    assert min(per_domain.values()) >= 40


@pytest.mark.parametrize("domain", sorted(DOMAINS))
def test_calibration_labels_are_balanced_within_each_domain(items: list[Item], domain: str) -> None:
    labels = Counter(item.label for item in items if item.domain == domain)
    share = {label: count / labels.total() for label, count in labels.items()}
    assert share == pytest.approx({"correct": 0.4, "incorrect": 0.4, "abstained": 0.2}, abs=0.05)


def test_no_answer_stands_twice_under_one_question(items: list[Item]) -> None:
    pairs = Counter((item.question, " ".join(item.answer.casefold().split())) for item in items)
    assert [pair for pair, count in pairs.items() if count > 1] == []


def test_answers_come_in_clusters_of_three_to_five_with_one_reference_and_more_than_one_label(
    items: list[Item],
) -> None:
    for question, group in clusters(items).items():
        assert 3 <= len(group) <= 5, question
        assert len({(item.reference, item.domain) for item in group}) == 1, question
        assert len({item.label for item in group}) >= 2, question


def test_each_kind_of_answer_has_one_label(items: list[Item]) -> None:
    assert [item for item in items if LABEL_OF_KIND.get(item.kind) != item.label] == []
    assert {item.kind for item in items} == set(LABEL_OF_KIND)


def test_exact_answers_equal_their_reference_and_other_labels_never_do(items: list[Item]) -> None:
    def bare(text: str) -> str:
        return text.strip("`").casefold().removeprefix("the ")

    assert all(bare(item.answer) == bare(item.reference) for item in items if item.kind == "exact")
    assert not [item for item in items if item.label != "correct" and bare(item.answer) == bare(item.reference)]


def test_abstaining_answers_never_name_the_reference(items: list[Item]) -> None:
    assert not [item for item in items if item.label == "abstained" and holds(item.answer, item.reference)]


def test_hedges_name_the_reference_or_its_last_name_beside_another_answer(items: list[Item]) -> None:
    for item in (item for item in items if item.kind == "hedge"):
        assert holds(item.answer, item.reference.split()[0]) or holds(item.answer, item.reference.split()[-1]), item
        assert " or " in item.answer, item


def number(text: str) -> Decimal | None:
    found: re.Match[str] | None = re.search(r"\d[\d,]*(?:\.\d+)?", text)
    if found is None:
        return None
    return Decimal(found[0].replace(",", "")) * (10**9 if "billion" in text else 1)


def test_numbers_are_called_right_exactly_when_they_round_to_the_last_significant_figure_of_the_reference(
    items: list[Item],
) -> None:
    checked: Counter[str] = Counter()
    for item in (item for item in items if item.kind in ("number_ok", "number_off")):
        reference, answer = number(item.reference), number(item.answer)
        if reference is None or answer is None:
            continue  # Roman numerals
        rounded = answer.quantize(Decimal(1).scaleb(int(reference.normalize().as_tuple().exponent)))
        assert (rounded == reference) == (item.kind == "number_ok"), item
        checked[item.kind] += 1
    assert checked["number_ok"] >= 4
    assert checked["number_off"] >= 8


def test_no_calibration_question_holds_its_reference(items: list[Item]) -> None:
    assert not [item.question for item in items if holds(item.question, item.reference)]


def test_calibration_says_who_labelled_it_and_that_nobody_has_reviewed_it(items: list[Item]) -> None:
    assert {(item.source, item.labelled_by, item.reviewed_by) for item in items} == {("gavel", "gavel authors", None)}


def test_samples_and_calibration_share_no_question(tasks: list[Task], items: list[Item]) -> None:
    def thirteen(text: str) -> set[Any]:
        parts = words(text).split()
        return {tuple(parts[n : n + 13]) for n in range(len(parts) - 12)}

    asked, labelled = [task.target["question"] for task in tasks], list(clusters(items))
    assert {words(text) for text in asked}.isdisjoint(words(text) for text in labelled)
    assert set().union(*map(thirteen, asked)).isdisjoint(set().union(*map(thirteen, labelled)))


def test_no_question_stands_in_a_prompt_of_our_judges(tasks: list[Task], items: list[Item]) -> None:
    prompts = [words(path.read_text(encoding="utf-8")) for path in (files("gavel.judges") / "prompts").iterdir()]
    assert prompts
    asked = [task.target["question"] for task in tasks] + list(clusters(items))
    assert not [question for question in asked if any(words(question) in prompt for prompt in prompts)]


def test_the_data_card_gives_the_counts_and_the_kinds_of_each_label(items: list[Item]) -> None:
    card = " ".join((Path(__file__).parents[2] / "docs" / "data.md").read_text(encoding="utf-8").split())
    labels, questions = Counter(item.label for item in items), len(clusters(items))
    assert (
        f"{len(items)} labelled answers to {questions} other questions, {len(items) // len(DOMAINS)} answers per domain"
        in card
    )
    assert f"{labels['correct']} correct, {labels['incorrect']} incorrect, {labels['abstained']} abstained" in card
    for label in labels:
        kinds = ", ".join(f"`{kind}`" for kind, its_label in LABEL_OF_KIND.items() if its_label == label)
        assert f"| `{label}` | {kinds} |" in card
