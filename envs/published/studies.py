"""Every study whose figures are computed again, by name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from gavel.envs.published.comparisons import recount_judgebench, recount_llmbar, recount_pandalm
from gavel.envs.published.conversations import recount_run, recount_table
from gavel.envs.published.figures import Study
from gavel.envs.published.instructions import recount_ifbench, recount_ifeval_llama, recount_mifeval_ja
from gavel.envs.published.raters import recount_clinicians, recount_healthbench_meta
from gavel.envs.published.win_rates import recount_alpacaeval

STUDIES: Mapping[str, Study] = MappingProxyType(
    {
        study.name: study
        for study in (
            Study("ifbench_replies", "allenai/IFBench, eval/", "ODC-BY-1.0", recount_ifbench),
            Study("ifeval_llama", "Jack-Lingjie/IFeval, data/", "Apache-2.0", recount_ifeval_llama),
            Study("mifeval_ja", "shisa-ai/M-IFEval, evaluation/", "Apache-2.0", recount_mifeval_ja),
            Study(
                "llmbar", "princeton-nlp/LLMBar, each judge's statistics.json", "MIT", recount_llmbar,
            ),
            Study("judgebench", "ScalerLab/JudgeBench, outputs/", "none stated", recount_judgebench),
            Study(
                "alpacaeval", "tatsu-lab/alpaca_eval, leaderboards/", "CC BY-NC 4.0", recount_alpacaeval,
                "length-controlled rates cannot be had from these data",
            ),
            Study("pandalm", "WeOpenML/PandaLM, data/testset-v1.json", "Apache-2.0", recount_pandalm),
            Study(
                "vera_clinicians", "arXiv:2602.05088, zeppombal/VERA-MH", "Spring Care's", recount_clinicians,
                "the paper does not say which estimator its figure is of; by dimension nothing is published",
            ),
            Study("vera_v1_table", "zeppombal/VERA-MH, score_comparisons/", "Spring Care's", recount_table),
            Study("vera_run_200", "gersonazgo/nami-vera-mh, releases/2026-08-13", "its NOTICE.md", recount_run),
            Study(
                "healthbench_meta_120", "pariskang/Med-Bench-Arena, data/calibration/", "MIT", recount_healthbench_meta
            ),
        )
    }
)  # fmt: skip
