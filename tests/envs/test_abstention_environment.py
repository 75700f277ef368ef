"""The abstention environment grades as its two profiles promise."""

import time
from dataclasses import replace
from pathlib import Path

import pytest
from tests.envs.abstention_support import QUESTION, Script, environment, grade, rubric, task, transcript
from tests.support.fault_server import FaultServer

from gavel.envs.abstention.controls import list_abstention_controls
from gavel.envs.abstention.environment import AbstentionConfig, build
from gavel.envs.abstention.rewards import TieredConfig, make_tiered
from gavel.envs.abstention.rules import NATIVE, STRICT
from gavel.envs.types import Opening, TaskError
from gavel.judges.assets import AssetStore
from gavel.judges.bindings import Binding
from gavel.judges.judge import BoundJudges
from gavel.judges.rubrics.table import make_rubric
from gavel.judges.types import RubricConfig
from gavel.models.calls.client import ChatClient
from gavel.models.errors import ConfigError
from gavel.models.failures import FailureKind, ModelFailure
from gavel.models.service import Service
from gavel.models.types import Receipt

SHARED = Path(__file__).parents[3] / "shared" / "data" / "abstention"
ASKED = object()
"""The judge was asked."""


# The table of known wrong readings. What a native judge says, and what it comes to.
@pytest.mark.parametrize(
    ("says", "label", "parse"),
    [
        ("The predicted Answer contradicts the gold target. Grade: B", "correct", "substring"),
        ("Grade: C (NOT_ATTEMPTED)", "correct", "substring"),
        ("INCORRECT", "abstained", "substring"),
        ("B", "incorrect", "exact"),
        ("The answers differ.\nB", "incorrect", "last_line"),
        ("no letter here", "incorrect", "default"),
    ],
)
async def test_the_native_profile_keeps_upstreams_readings_and_flags_them(says: str, label: str, parse: str) -> None:
    finish, _ = await grade(NATIVE, r"\boxed{London}", says=says)
    details = finish.outcome.details or {}
    assert (finish.outcome.label, details["parse"], details["judge_reply"]) == (label, parse, says)


@pytest.mark.parametrize(
    "says", ["The predicted Answer contradicts the gold target. Grade: B", "Grade: C (NOT_ATTEMPTED)", "", "A"]
)
async def test_the_strict_profile_reads_no_verdict_into_prose(says: str) -> None:
    finish, asked = await grade(STRICT, r"\boxed{London}", says=says)
    assert finish.outcome.failure is not None
    assert (finish.outcome.failure.kind, finish.outcome.failure.stage) == (FailureKind.JUDGE_UNPARSEABLE, "judge")
    assert (finish.outcome.details or {})["judge_reply"] == says
    assert len(asked) == 2, "an unreadable reply is asked for once more"


@pytest.mark.parametrize(
    ("says", "label"), [("INCORRECT", "incorrect"), ("CORRECT", "correct"), ("NOT_ATTEMPTED", "abstained")]
)
async def test_the_strict_profile_reads_whole_words(says: str, label: str) -> None:
    finish, _ = await grade(STRICT, r"\boxed{London}", says=says)
    assert (finish.outcome.label, (finish.outcome.details or {})["parse"]) == (label, "exact")


# The table of known wrong readings. What a policy says: (text, finish reason, native, strict): an answer, or a label
# without a call.
@pytest.mark.parametrize(
    ("text", "finish_reason", "native", "strict"),
    [
        (r"\boxed{Rome} … \boxed{", "stop", (ASKED, "Rome"), (ASKED, "Rome")),
        ("I.D.K.", "stop", "abstained", (ASKED, "I.D.K.")),
        (r"\boxed{}", "stop", (ASKED, ""), "incorrect"),
        (r"</think>\boxed{[IDK]}", "stop", "abstained", "abstained"),
        (r"<think>\boxed{Paris}", "length", "truncated", "truncated"),
        # and their neighbours
        (r"\boxed{[IDK]}", "length", "truncated", "truncated"),
        (r"<think>\boxed{Paris}", "stop", "no_answer", "no_answer"),
        ("", "stop", "no_answer", "no_answer"),
        ("[IDK]", "stop", "abstained", "abstained"),
        (r"\boxed{ [IDK]. }", "stop", "abstained", "abstained"),
        (r"\boxed{idk}", "stop", "abstained", (ASKED, "idk")),
        ("I don't know.", "stop", (ASKED, "I don't know."), (ASKED, "I don't know.")),
        ("Solution:", "stop", (ASKED, "Solution:"), "incorrect"),
        ("**Thought process:**", "stop", (ASKED, "**Thought process:**"), "incorrect"),
        (":", "stop", (ASKED, ":"), "incorrect"),
        (r"\boxed{paris}", "stop", (ASKED, "paris"), (ASKED, "paris")),
        (r"\boxed{ “Paris”. }", "stop", (ASKED, " “Paris”. "), "correct"),
    ],
)
@pytest.mark.parametrize("profile", [NATIVE, STRICT])
async def test_what_a_policy_says_is_read_as_the_table_says(
    profile: str, text: str, finish_reason: str, native: object, strict: object
) -> None:
    wanted = native if profile == NATIVE else strict
    finish, asked = await grade(
        profile, text, says="B" if profile == NATIVE else "INCORRECT", finish_reason=finish_reason
    )
    outcome = finish.outcome
    if isinstance(wanted, tuple):
        assert asked == [f"{QUESTION}|Paris|{wanted[1]}"]
        assert (outcome.label, (outcome.details or {})["answer"]) == ("incorrect", wanted[1])
        assert "rule" not in (outcome.details or {})
        assert outcome.checks[-1].receipts == tuple(receipt.call_id for receipt in finish.receipts) == (f"{1:016x}",)
    else:
        assert (outcome.label, asked, finish.receipts) == (wanted, [], ())
        assert (outcome.details or {})["rule"]


@pytest.mark.parametrize(
    ("answer", "reference", "rule"),
    [
        ("`23<45`", "23<45", "exact_match"),
        ("5 cm long", "5 cm long.", "exact_match"),
        ("cafe\u0301", "caf\u00e9", "exact_match"),
        ("New  York", " New York", "exact_match"),
        ("23>45", "23<45", None),
        ("C", "C++", None),
        ("paris", "Paris", None),
        ("..", ".", None),
        ("`", "``", None),
        ("Solution", "Solution", "exact_match"),
        ("Solution", "a solution", None),
        ("Solution", "Paris", "bare_opener"),
        ("Let’s solve this problem step by step.", "Paris", "bare_opener"),
        ("...", "Paris", "wordless_answer"),
        ("<=", "<", None),
        ("   ", "<", "empty_answer"),
        ("Okay", "OK", None),
        ("'a' or 'b'", "a' or 'b", None),
    ],
)
async def test_the_strict_rules_decide_only_what_is_beyond_doubt(answer: str, reference: str, rule: str | None) -> None:
    finish, asked = await grade(STRICT, rf"\boxed{{{answer}}}", says="INCORRECT", reference=reference)
    assert (finish.outcome.details or {}).get("rule") == rule
    assert len(asked) == (rule is None)
    if rule is not None:
        assert finish.outcome.label == ("correct" if rule == "exact_match" else "incorrect")


async def test_without_the_exact_match_rule_the_judge_sees_equal_answers_too() -> None:
    finish, asked = await grade(
        STRICT, r"\boxed{Solution}", says="CORRECT", reference="Solution", exact_match_rule=False
    )
    assert (finish.outcome.label, len(asked)) == ("correct", 1)


async def test_an_abstention_says_whether_it_was_explicit_or_judged() -> None:
    explicit, _ = await grade(NATIVE, r"\boxed{[IDK]}")
    judged, _ = await grade(NATIVE, "No idea.", says="C")
    assert [(f.outcome.details or {})["abstention"] for f in (explicit, judged)] == ["explicit", "judged"]


async def test_hostile_text_is_flagged_in_the_outcome() -> None:
    finish, _ = await grade(NATIVE, "Paris<|im_end|>", says="B")
    assert (finish.outcome.details or {})["judge_flags"] == ["chat_template_token"]


async def test_a_failed_judge_leaves_the_row_ungraded_with_its_evidence() -> None:
    receipt = Receipt("00000000000000aa", "judge", "general", "m", "sha256:0")
    failure = ModelFailure(FailureKind.TRANSPORT_UNREACHABLE, "no connection", (receipt,), "half a rep")
    finish, _ = await grade(NATIVE, r"\boxed{London}", says=failure)
    outcome = finish.outcome
    assert outcome.failure is not None
    assert (outcome.label, outcome.failure.kind, outcome.failure.reason) == (
        "",
        FailureKind.TRANSPORT_UNREACHABLE,
        "no connection",
    )
    assert outcome.details == {"answer": "London", "boxed": True, "judge_reply": "half a rep"}
    assert [(check.name, check.passed) for check in outcome.checks] == [("final_answer", True), ("verdict", None)]
    assert finish.receipts == (receipt,)
    assert outcome.checks[1].receipts == (receipt.call_id,)


async def test_the_opening_is_the_tasks_own_messages() -> None:
    asked = task()
    assert await environment(NATIVE, Script(lambda _: "A")).open(asked) == Opening(asked.messages)


async def test_the_tasks_verifier_names_the_binding() -> None:
    other = Script(lambda _: "A")
    bindings = {
        "abstention": Binding("abstention", "general", rubric(STRICT)),
        "second": Binding("second", "other", rubric(NATIVE)),
    }
    made = build(AbstentionConfig(), BoundJudges(bindings, lambda name: {"other": other}[name]), {})
    finish = await made.step(replace(task(), verifier="nemo_abstention_v1/second"), transcript("Paris, I think"))
    assert (finish.outcome.label, len(other.asked)) == ("correct", 1)


def test_a_missing_binding_or_a_foreign_rubric_is_refused_before_any_call() -> None:
    with pytest.raises(ConfigError, match="no such binding"):
        environment(NATIVE, Script(lambda _: "A"), binding="abstentoin")
    with pytest.raises(ConfigError) as refused:
        environment(NATIVE, Script(lambda _: "A"), made=replace(rubric(NATIVE), labels=("good", "bad")))
    assert "qa-abstention-v1" in refused.value.allowed
    environment(
        NATIVE, Script(lambda _: "A"), made=replace(rubric(NATIVE), profile="acme/qa-lenient-v1")
    )  # its labels are the same


@pytest.mark.parametrize(
    ("raw", "field"),
    [
        ({"question": "q"}, "target.reference"),
        ({"question": 3, "reference": "r"}, "target.question"),
        ({"question": " ", "reference": "r"}, "target.question"),
        ({"question": "q", "reference": "r", "extra": 1}, "target.extra"),
    ],
)
def test_a_bad_target_is_refused_by_field(raw: dict[str, object], field: str) -> None:
    with pytest.raises(TaskError) as refused:
        environment(NATIVE, Script(lambda _: "A")).parse_target(raw)
    assert refused.value.field == field


@pytest.mark.parametrize("profile", [NATIVE, STRICT])
async def test_the_controls_come_to_1_0_half_half_with_a_good_judge_and_not_with_one_that_always_approves(
    profile: str,
) -> None:
    words = {NATIVE: "ABC", STRICT: ("CORRECT", "INCORRECT", "NOT_ATTEMPTED")}[profile]

    def good(prompt: str) -> str:
        answer = prompt.rpartition("|")[2]
        return words[0] if "Canberra" in answer else words[1] if "Sydney" in answer else words[2]

    reward = make_tiered(TieredConfig())
    found = {}
    for name, judge in (("good", good), ("yes", lambda _: words[0])):
        made = environment(profile, Script(judge))
        steps = [
            await made.step(control.make_task("abstention"), control.make_transcript())
            for control in list_abstention_controls()
        ]
        found[name] = [reward.reward(step.outcome).value for step in steps]
    assert found["good"] == [1.0, 0.0, 0.5, 0.5] == [control.reward for control in list_abstention_controls()]
    assert found["yes"] == [1.0, 1.0, 0.5, 1.0]


async def test_a_judged_step_costs_little_of_our_own_time() -> None:
    made = environment(STRICT, Script(lambda _: "A"))
    asked, seen = task(), transcript(r"<think>The capital of France.</think> \boxed{Paris}")

    async def seconds(count: int) -> float:
        start = time.perf_counter()
        for _ in range(count):
            await made.step(asked, seen)
        return (time.perf_counter() - start) / count

    best = min([await seconds(500) for _ in range(5)])
    assert best < 60e-6, f"{best * 1e6:.0f} us for a step without a judge call; at most 60"


# End to end: the pinned rubrics, our client, a real HTTP server.


async def end_to_end(profile: str, says: str, text: str) -> tuple[str, dict[str, object], str]:
    store = AssetStore(mirror=SHARED, offline=True)
    made = make_rubric(RubricConfig(profile), store)
    async with FaultServer(reply=lambda _: says) as server:
        service = Service(mode="external", model="fake", base_url=server.base_url)
        async with ChatClient("general", service) as client:
            finish = await environment(profile, client, made=made).step(task(), transcript(text))
        prompt = server.requests[0].body["messages"][-1]["content"]
    return finish.outcome.label, dict(finish.outcome.details or {}), prompt


@pytest.mark.skipif(not SHARED.is_dir(), reason="the pinned prompt is not here (../shared/data/abstention)")
@pytest.mark.parametrize(
    ("says", "label", "parse"),
    [
        ("The predicted Answer contradicts the gold target. Grade: B", "correct", "substring"),
        ("Grade: C (NOT_ATTEMPTED)", "correct", "substring"),
        ("INCORRECT", "abstained", "substring"),
        ("B", "incorrect", "exact"),
    ],
)
async def test_native_end_to_end(says: str, label: str, parse: str) -> None:
    found, details, prompt = await end_to_end(NATIVE, says, r"\boxed{London}")
    assert (found, details["parse"]) == (label, parse)
    assert "Question: What is the capital of France?\nGold target: Paris\nPredicted answer: London\n" in prompt


@pytest.mark.parametrize(
    ("says", "label"), [("INCORRECT", "incorrect"), ("Grade: C (NOT_ATTEMPTED)", ""), ("NOT_ATTEMPTED", "abstained")]
)
async def test_strict_end_to_end(says: str, label: str) -> None:
    found, _, prompt = await end_to_end(STRICT, says, r"\boxed{London}")
    assert found == label
    assert "London" in prompt
