"""Pairs of replies: what judges said in both orders, read from their own texts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import combinations

from gavel.envs.published.figures import Figure, make_figure
from gavel.envs.published.files import PublishedFiles, read_pins
from gavel.judges.calibration.statistics import compute_kappa, count_confusion
from gavel.judges.pairs.published import (
    compute_llmbar_statistics,
    count_pairs,
    read_judgebench,
    read_llmbar,
    read_llmbar_verdicts,
)

_JUDGEBENCH = "ScalerLab/JudgeBench/outputs/dataset=judgebench,response_model=gpt-4o-2024-05-13,"
_JUDGES = (
    ("o1-mini", "judge_name=arena_hard,judge_model=o1-mini-2024-09-12", (58.44, 62.24, 82.14, 78.57, 65.71)),
    (
        "Skywork-Gemma-27B",
        "judge_name=reward_model,judge_model=Skywork_Skywork-Reward-Gemma-2-27B",
        (59.74, 66.33, 83.93, 50.00, 64.29),
    ),
    (
        "Skywork-Llama-8B",
        "judge_name=reward_model,judge_model=Skywork_Skywork-Reward-Llama-3.1-8B",
        (59.09, 64.29, 76.79, 50.00, 62.29),
    ),
    (
        "InternLM2-20B",
        "judge_name=reward_model,judge_model=internlm_internlm2-20b-reward",
        (62.34, 69.39, 66.07, 50.00, 63.43),
    ),
)
_PARTS = ("knowledge", "reasoning", "math", "coding", "overall")
_LLMBAR = "princeton-nlp/LLMBar/"
_PANDALM = "WeOpenML/PandaLM/data/testset-v1.json"


def recount_judgebench(files: PublishedFiles) -> Sequence[Figure]:
    """Return JudgeBench's accuracies (Tan et al. 2024, arXiv:2410.12784): a pair is right where both orders together
    say so.
    """
    found = []
    for judge, name, published in _JUDGES:
        pairs = read_judgebench(files.read_text(f"{_JUDGEBENCH}{name}.jsonl").splitlines())
        counted = count_pairs(pairs)
        found += [
            make_figure(f"{judge}, {part}", f"{share:.2f}", f"{100 * counted[part].share:.2f}")
            for part, share in zip(_PARTS, published, strict=True)
        ]
    return found


def recount_llmbar(files: PublishedFiles) -> Sequence[Figure]:
    """Return how many of LLMBar's stored judges (Zeng et al. 2023, arXiv:2310.07641) come to their own statistics when
    their raw completions are read again.
    """
    names = sorted(
        name.removesuffix("/result.json")
        for name in read_pins()
        if name.startswith(_LLMBAR) and name.endswith("/result.json")
    )
    equal = sum(_is_llmbar_equal(files, name) for name in names)
    return [make_figure("judges whose accuracies, agreement and kappas are equal", f"{len(names)}/{len(names)}",
                        f"{equal}/{len(names)}")]  # fmt: skip


def _is_llmbar_equal(files: PublishedFiles, name: str) -> bool:
    rows = read_llmbar(files.read_text(f"{name}/result.json"), name.partition("/evaluators/")[2])
    stored = json.loads(files.read_text(f"{name}/statistics.json"))
    computed = compute_llmbar_statistics([row.label for row in rows], [read_llmbar_verdicts(row) for row in rows])
    return all(_is_near(stored.get(key), value) for key, value in computed.items() if key in stored)


def _is_near(stored: object, computed: object) -> bool:
    if isinstance(stored, float) and isinstance(computed, float):
        return abs(stored - computed) < 1e-9 or (stored != stored and computed != computed)
    return stored == computed


def recount_pandalm(files: PublishedFiles) -> Sequence[Figure]:
    """Return the kappas of PandaLM's three people (Wang et al. 2023, arXiv:2306.05087) over 999 pairs."""
    rows = json.loads(files.read_text(_PANDALM))
    found = []
    for (one, other), published in zip(combinations((1, 2, 3), 2), ("0.85", "0.88", "0.86"), strict=True):
        first, second = ([int(row[f"annotator{person}"]) for row in rows] for person in (one, other))
        kappa = float(compute_kappa(count_confusion(first, second, 3)))
        found.append(make_figure(f"kappa of person {one} and {other}", published, f"{kappa:.2f}"))
    return found
