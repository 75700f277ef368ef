"""Every line of the reports of inputs that failed has a test that holds its right value, named after its kind."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import orjson
import pytest

TESTS = Path(__file__).parent
REPORTS = TESTS.parents[1] / "shared" / "data" / "reports"

_REPORTED = "test_reported_inputs.py"
_QUOTED = f"{_REPORTED}::test_a_verdict_that_a_judge_only_repeats_or_thinks_of_is_not_its_own"
_FENCED = f"{_REPORTED}::test_a_fence_around_a_verdict_and_thinking_before_it_are_taken_off"
_UNSTATED = (
    "envs/test_abstention_metrics.py::"
    "test_verdicts_that_no_judge_stated_are_remarked_upon_with_the_share_that_counts_as_correct"
)
_NAMES = "models/test_served_names.py::"
_FORM = "models/test_request_form.py::"
_ANSWERS = "envs/test_several_answers.py::"
_VERA = "envs/vera_mh/test_run.py::"
_SWEEP = "launch/test_sweep.py::"
_THINKING_ONLY = "launch/test_reply_remarks.py::test_most_replies_without_an_answer_name_the_setting"
_SIGNALS = "launch/test_stopping.py::test_a_rollout_ends_on_either_signal_though_sigint_was_ignored"

TABLE: Mapping[str, Mapping[str, str]] = {
    "judging": {
        "if-quoted-object": _QUOTED,
        "if-quoted-marker": _QUOTED,
        "if-prefilled-think": _QUOTED,
        "native-refusal": _UNSTATED,
        "native-verbose-b": _UNSTATED,
        "responses-two-messages": f"{_FORM}test_a_reply_of_several_messages_is_the_last_ones_parts_a_line_each",
        "parts-reasoning-text": f"{_FORM}test_only_parts_of_text_are_the_answer",
        "judge-sampling-ignored": (
            "launch/test_unread_keys.py::test_a_judges_sampling_is_refused_with_the_key_that_is_read"
        ),
        "judge-dashscope": f"{_FORM}test_a_server_that_asks_for_no_thinking_is_told_so_once",
        "judge-no-json-schema": f"{_FORM}test_a_response_format_that_is_refused_gives_way_step_by_step",
        "identity-azure": "launch/test_providers.py::test_every_row_is_graded",
        "identity-anthropic-alias": f"{_NAMES}test_a_dated_or_routed_name_is_the_model_that_was_asked_for",
        "identity-too-wide": f"{_NAMES}test_another_model_is_another_model",
        "fenced-json-strict": _FENCED,
        "inline-think-strict": _FENCED,
        "policy-reasoning-only": _THINKING_ONLY,
        "policy-box-think": f"{_REPORTED}::test_thinking_in_brackets_is_no_answer_and_a_tag_within_a_box_is",
        "policy-bracket-think": f"{_REPORTED}::test_thinking_in_brackets_is_no_answer_and_a_tag_within_a_box_is",
        "throttle-retry-after": "launch/test_pacing.py::test_a_quota_of_calls_paces_a_run_and_loses_no_row",
        "ctx-sglang": f"{_REPORTED}::test_a_refusal_is_read_by_its_words",
        "hygiene-zh": (
            "envs/test_hygiene_scripts.py::test_a_question_inside_a_longer_protected_one_is_found_and_another_is_not"
        ),
        "aliases-ignored": f"{_ANSWERS}test_a_rows_accepted_answers_are_its_answer_and_its_aliases",
        "answer-list": f"{_ANSWERS}test_a_rows_accepted_answers_are_its_answer_and_its_aliases",
        "claude-both": (
            f"{_FORM}test_top_p_of_one_is_left_out_wherever_it_is_named_and_another_one_only_where_it_is_refused"
        ),
        "litellm-budget": f"{_REPORTED}::test_a_refusal_is_read_by_its_words",
        "seed-repeats": "models/test_seeds.py::test_each_draw_of_a_prompt_has_a_seed_of_its_own",
    },
    "vera_mh": {
        "slug": f"{_NAMES}test_a_dated_or_routed_name_is_the_model_that_was_asked_for",
        "azure_deployment": f"{_NAMES}test_a_policys_name_is_recorded_and_refused_only_where_it_is_pinned",
        "filter_empty": f"{_VERA}test_conversations_with_empty_replies_are_all_graded_and_pooled_by_upstreams_rule",
        "refusal_field": f"{_VERA}test_a_refusal_in_a_field_of_its_own_is_what_the_chatbot_said",
        "ci_rollouts": (
            "envs/vera_mh/test_metrics.py::test_more_rollouts_of_the_same_conversations_leave_every_interval_as_it_is"
        ),
        "prompt_ignored": (
            f"{_VERA}test_a_run_records_no_other_instructions_than_its_tasks_have_"
            "and_upstreams_are_refused_where_they_are_not_those"
        ),
        "stuck": "launch/test_counted_once.py::test_the_command_that_is_printed_plays_rows_again_that_were_given_up",
        "cost_double": (
            "launch/test_counted_once.py::test_calls_of_a_row_that_was_tried_again_are_counted_once_at_every_look"
        ),
        "marker": f"{_VERA}test_markers_in_the_judges_reasoning_are_words_and_change_no_rating",
        "empty_system": f"{_VERA}test_a_chatbot_without_instructions_is_sent_no_system_message",
    },
    "core": {
        "core-1": "launch/test_train.py::test_an_environment_that_declares_no_turns_is_not_trained",
        "core-2": (
            "launch/test_own_code_that_fails.py::"
            "test_a_bug_in_a_reward_policy_is_a_failed_row_that_names_policy_and_exception"
        ),
        "core-3": (
            "launch/test_own_code_that_fails.py::"
            "test_a_row_that_its_environment_refuses_is_invalid_alone_and_is_not_played_again"
        ),
        "core-4": "envs/test_judged.py::test_a_package_brings_rubrics_of_files_and_of_code",
        "core-5": (
            "envs/instruction_following/test_environment_source.py::"
            "test_an_instruction_of_the_table_without_a_function_is_refused_at_import"
        ),
        "core-6": _SIGNALS,
    },
    "security": {
        "redos-tag": f"{_REPORTED}::test_a_hostile_reply_is_neutralised_in_a_time_that_grows_with_it",
        "redos-mark": f"{_REPORTED}::test_a_hostile_reply_is_neutralised_in_a_time_that_grows_with_it",
        "sigterm-ignored": _SIGNALS,
        "dollar-resume": "launch/test_literals.py::test_a_run_is_resumed_whole_and_the_server_gets_the_literal_text",
        "env-in-run-config": "launch/test_literals.py::test_a_secret_is_not_looked_up_for_a_value_that_is_stored",
        "stdin-closed": "launch/test_stopping.py::test_closed_descriptors_are_given_something_to_be",
        "tampered-row": "launch/test_verify.py::test_an_edited_run_is_not_resumed_and_its_report_says_so",
        "tokens-not-neutralised": f"{_REPORTED}::test_special_tokens_of_current_models_do_not_reach_a_judge",
        "hint-unquoted": "launch/test_printed_commands.py::test_no_command_is_put_together_of_unquoted_parts",
        "bodies": (
            "envs/interfaces/test_http_bounds.py::"
            "test_bodies_that_never_end_are_bounded_together_and_hold_no_other_client_up"
        ),
    },
    "command": {
        "glob-sweep": f"{_SWEEP}test_a_glob_is_the_choices_of_its_group_that_fit",
        "interval-sweep": f"{_SWEEP}test_values_that_cannot_be_counted_up_are_refused",
        "pipe-exit": "launch/test_stopping.py::test_a_reader_that_went_away_gives_141",
        "own-rubric": (
            "launch/test_own_grading.py::"
            "test_a_file_in_place_of_a_profile_brings_its_own_sampling_and_the_command_line_comes_first"
        ),
        "domain-field": f"{_ANSWERS}test_the_rows_own_domain_is_its_slice_and_is_derived_only_where_there_is_none",
        "ifeval-row": (
            "envs/instruction_following/test_source_ifeval.py::"
            "test_a_row_as_it_was_reported_is_played_and_prepare_says_which_rows_are_left_out"
        ),
        "healthbench-row": (
            "launch/test_own_grading.py::test_rows_in_the_form_of_healthbench_prepare_grade_and_rescore_without_a_call"
        ),
        "no-slurm-rollout": (
            "launch/test_verb_jobs.py::test_eight_parts_of_which_one_is_killed_merge_into_the_whole_run"
        ),
        "misalign-system": (
            "envs/instruction_following/test_environment_source.py::"
            "test_preparing_says_how_many_misalignment_checks_of_the_system_are_not_flipped"
        ),
    },
}


@cache
def list_tests(path: Path) -> frozenset[str]:
    """Return the names of the tests of a file that run: those of its module, and of its classes."""
    nodes = ast.walk(ast.parse(path.read_text()))
    return frozenset(node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


LINES = [(report, number) for report, lines in TABLE.items() for number in lines]


@pytest.mark.parametrize(("report", "number"), LINES, ids=[number for _, number in LINES])
def test_a_lines_test_is_there(report: str, number: str) -> None:
    file, _, name = TABLE[report][number].partition("::")
    assert name.startswith("test_")
    assert name in list_tests(TESTS / file)


@pytest.mark.skipif(not REPORTS.is_dir(), reason="the reports are not here (../shared/data/reports)")
@pytest.mark.parametrize("report", TABLE)
def test_no_line_of_a_report_is_without_a_test(report: str) -> None:
    lines = (REPORTS / f"{report}.jsonl").read_bytes().splitlines()
    assert {orjson.loads(line)["id"] for line in lines} <= TABLE[report].keys()
