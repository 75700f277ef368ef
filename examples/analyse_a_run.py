"""Look at a run: python examples/analyse_a_run.py runs/demo. The cells (# %%) open as a notebook in most editors."""

# %% What there is. Rows are frozen dataclasses; ``failed`` ones have no reward and belong into no mean.
import sys
from collections import Counter
from statistics import fmean

import gavel

run = gavel.load_run(sys.argv[1])
print(f"{run.path}: {len(run.graded)} graded, {len(run.failed)} without a grade, {run.planned} planned")

# %% What the policy did.
for label, count in Counter(row.outcome.label for row in run.graded).most_common():
    print(f"{label:<14}{count:>5}")
rewards = [row.reward.value for row in run.graded if row.reward is not None]
if rewards:
    print(f"mean reward {fmean(rewards):.3f}")

# %% What went wrong that is not the policy's doing.
for kind, count in Counter(
    row.outcome.failure.kind.value for row in run.failed if row.outcome.failure is not None
).items():
    print(f"{kind}: {count}")

# %% The lowest rewards, with the evidence of their checks.
for row in sorted(run.graded, key=lambda row: row.reward.value if row.reward else 0.0)[:3]:
    last = row.transcript.replies[-1].content if row.transcript.replies else ""
    print(f"{row.task_id} #{row.rollout_index}: {last[:60]!r}")
    for check in row.outcome.checks:
        print(f"    {check.name}: {check.passed} ({check.detail})")

# %% The same as a data frame, where pandas is installed.
try:
    print(run.to_pandas().groupby("label", dropna=False)["reward"].describe())
except gavel.InputError as missing:
    print(missing)
