"""Instruction following: stored verdicts counted again, by prompts and by instructions."""

from __future__ import annotations

from collections.abc import Sequence

from gavel.envs.published.figures import Figure, make_count, make_figure
from gavel.envs.published.files import PublishedFiles

_IFBENCH, _IFEVAL, _MIFEVAL = "allenai/IFBench/eval", "Jack-Lingjie/IFeval/data", "shisa-ai/M-IFEval/evaluation"


def count_followed(files: PublishedFiles, name: str) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return (followed, all) of prompts, whose every instruction was followed, and of instructions."""
    rows = [row["follow_instruction_list"] for row in files.read_rows(name)]
    prompts = sum(all(row) for row in rows), len(rows)
    return prompts, (sum(map(sum, rows)), sum(map(len, rows)))


def recount_ifbench(files: PublishedFiles) -> Sequence[Figure]:
    """Return IFBench's figures for its sample replies (Pyatkin et al. 2025, arXiv:2507.02833)."""
    found = []
    for kind, prompts, instructions in (("strict", (77, 294), (93, 335)), ("loose", (88, 294), (109, 335))):
        counted = count_followed(files, f"{_IFBENCH}/eval_results_{kind}.jsonl")
        found += [
            make_count(f"prompts, {kind}", prompts, counted[0]),
            make_count(f"instructions, {kind}", instructions, counted[1]),
        ]
    return found


def recount_ifeval_llama(files: PublishedFiles) -> Sequence[Figure]:
    """Return IFEval's figures (arXiv:2311.07911) for stored replies of Llama 3.1 8B Instruct."""
    found = []
    for kind, prompts, instructions in (("strict", (385, 541), (663, 834)), ("loose", (407, 541), (694, 834))):
        counted = count_followed(files, f"{_IFEVAL}/eval_results_{kind}.jsonl")
        found += [
            make_count(f"prompts, {kind}", prompts, counted[0]),
            make_count(f"instructions, {kind}", instructions, counted[1]),
        ]
    return found


def recount_mifeval_ja(files: PublishedFiles) -> Sequence[Figure]:
    """Return the Japanese figures that M-IFEval (arXiv:2502.04688) stores."""
    found = []
    for kind, prompts, instructions in (("strict", "0.4826", "0.5531"), ("loose", "0.5174", "0.5885")):
        counted = count_followed(files, f"{_MIFEVAL}/eval_results_{kind}.jsonl")
        for what, published, (good, total) in zip(
            ("prompts", "instructions"), (prompts, instructions), counted, strict=True
        ):
            found.append(make_figure(f"{what}, {kind}", published, f"{good / total:.4f}"))
    return found
